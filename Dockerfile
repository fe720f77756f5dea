# docker build -t regard . && docker run --rm -v regard-models:/models regard "The cat sat on the mat"
FROM python:3.13 AS build
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels "/source[hub]"

FROM python:3.13-slim
RUN --mount=from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "regard[hub]" && \
    useradd --create-home --uid 1000 reader && mkdir /models && chown 1000 /models
USER 1000
ENV HF_HOME=/models/huggingface XDG_CACHE_HOME=/models
VOLUME /models
ENTRYPOINT ["regard"]
