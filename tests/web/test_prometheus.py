from captcha_ocr.web.prometheus import Metrics


def test_requests_are_counted_by_endpoint_and_status_and_their_seconds_by_bucket():
    metrics = Metrics()
    for seconds, status in ((0.001, 200), (0.005, 200), (0.3, 422), (60.0, 200)):
        metrics.observe("/v1/read", status, seconds)
    metrics.refused += 2
    lines = str(metrics).splitlines()
    assert 'captcha_ocr_requests_total{endpoint="/v1/read",code="200"} 3' in lines
    assert 'captcha_ocr_requests_total{endpoint="/v1/read",code="422"} 1' in lines
    assert 'captcha_ocr_request_seconds_bucket{endpoint="/v1/read",le="0.005"} 2' in lines
    assert 'captcha_ocr_request_seconds_bucket{endpoint="/v1/read",le="0.5"} 3' in lines
    assert 'captcha_ocr_request_seconds_bucket{endpoint="/v1/read",le="+Inf"} 4' in lines
    assert 'captcha_ocr_request_seconds_sum{endpoint="/v1/read"} 60.306000' in lines
    assert 'captcha_ocr_request_seconds_count{endpoint="/v1/read"} 4' in lines
    assert lines[-1] == "captcha_ocr_refused_total 2"
