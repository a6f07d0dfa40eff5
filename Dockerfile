# A service that reads captchas, without torch: docs/web.md, "In a container".
FROM python:3.11-slim
WORKDIR /captcha-ocr
COPY pyproject.toml README.md LICENSE THIRD_PARTY.md constraints.txt requirements-reader.txt ./
COPY captcha_ocr captcha_ocr
RUN pip install --no-cache-dir --constraint constraints.txt --requirement requirements-reader.txt \
        starlette uvicorn && \
    pip install --no-cache-dir --no-deps .
USER nobody
EXPOSE 8000
HEALTHCHECK --start-period=10s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=5)"]
ENTRYPOINT ["captcha-ocr"]
CMD ["serve", "--host", "0.0.0.0"]
