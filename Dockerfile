# For reviewers of artifacts: docker build -t dp-repro-bench . && docker run dp-repro-bench make demo
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ git make && rm -rf /var/lib/apt/lists/*
WORKDIR /dp-repro-bench
# The versions that the committed records and tests were last checked with: docs/running.md#tested-versions
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir torch==2.14.1 torchvision==0.29.1
COPY . .
RUN make .venv/installed
CMD ["make", "demo"]
