"""Where the SLO breaks: which load to measure next, and what the measured levels say."""
