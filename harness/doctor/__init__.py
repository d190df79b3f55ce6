"""`tokenswarm doctor`: one short look at an endpoint, without locust or gevent: findings, with remedies."""

from harness.doctor.examination import examine
from harness.doctor.finding import Finding, exit_code

__all__ = ["Finding", "examine", "exit_code"]
