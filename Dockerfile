# syntax=docker/dockerfile:1
# The image of engine, master and workers: `tokenswarm` and `locust` are on the path. Not run here: see docs/deploy.md.

FROM python:3.11.14-slim-bookworm AS built
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tokenswarm
ENV PATH=/opt/tokenswarm/bin:$PATH
WORKDIR /source
# Dependencies first: they change seldom. Wheels only, so that no compiler is needed.
COPY requirements.lock ./
RUN pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md locustfile.py ./
COPY harness harness
COPY scenarios scenarios
COPY dashboards dashboards
RUN pip install --no-deps --no-build-isolation . \
    && tokenswarm init /tokenswarm \
    && mkdir /tokenswarm/runs

FROM python:3.11.14-slim-bookworm
ENV PATH=/opt/tokenswarm/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tokenswarm
COPY --from=built /opt/tokenswarm /opt/tokenswarm
# Runs are written below the working directory; a fresh volume mounted on runs/ takes over its owner.
COPY --from=built --chown=10001:10001 /tokenswarm /tokenswarm
WORKDIR /tokenswarm
USER 10001:10001
CMD ["tokenswarm", "--help"]
