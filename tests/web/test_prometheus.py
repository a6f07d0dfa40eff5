from captcha_ocr.web.prometheus import Metrics


def test_requests_are_counted_by_endpoint_and_status_and_their_seconds_by_bucket():
    metrics = Metrics()
    for seconds, status in ((0.001, 200), (0.005, 200), (0.3, 422), (60.0, 200)):
        metrics.observe("/v1/read", status, seconds)
    metrics.refused += 2
    lines = str(metrics).splitlines()
    name, place = "captcha_ocr_request_seconds", 'endpoint="/v1/read"'
    assert {
        f'captcha_ocr_requests_total{{{place},code="200"}} 3',
        f'captcha_ocr_requests_total{{{place},code="422"}} 1',
        f'{name}_bucket{{{place},le="0.005"}} 2',
        f'{name}_bucket{{{place},le="0.5"}} 3',
        f'{name}_bucket{{{place},le="+Inf"}} 4',
        f"{name}_sum{{{place}}} 60.306000",
        f"{name}_count{{{place}}} 4",
    } < {*lines}
    assert lines[-1] == "captcha_ocr_refused_total 2"
