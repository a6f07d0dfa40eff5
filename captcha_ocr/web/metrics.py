"""What a service counts, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # upper bounds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by endpoint and status, the seconds that each endpoint took, requests in flight, and refused ones.

    Used by one thread, that of the event loop.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.buckets: dict[str, list[int]] = {}
        self.in_flight = self.refused = 0

    def observe(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[endpoint, status] += 1
        self.seconds[endpoint] += seconds
        self.buckets.setdefault(endpoint, [0] * (len(BUCKETS_S) + 1))[
            bisect_left(BUCKETS_S, seconds)
        ] += 1

    def __str__(self) -> str:
        lines = ["# TYPE captcha_ocr_requests_total counter"]
        lines += [
            f'captcha_ocr_requests_total{{endpoint="{endpoint}",code="{status}"}} {count}'
            for (endpoint, status), count in sorted(self.requests.items())
        ]
        lines.append("# TYPE captcha_ocr_request_seconds histogram")
        for endpoint, counts in sorted(self.buckets.items()):
            bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
            lines += [
                f'captcha_ocr_request_seconds_bucket{{endpoint="{endpoint}",le="{bound}"}} {total}'
                for bound, total in zip(bounds, accumulate(counts), strict=True)
            ]
            lines.append(
                f'captcha_ocr_request_seconds_sum{{endpoint="{endpoint}"}} {self.seconds[endpoint]:.6f}'
            )
            lines.append(
                f'captcha_ocr_request_seconds_count{{endpoint="{endpoint}"}} {sum(counts)}'
            )
        lines += ["# TYPE captcha_ocr_in_flight gauge", f"captcha_ocr_in_flight {self.in_flight}"]
        lines += [
            "# TYPE captcha_ocr_refused_total counter",
            f"captcha_ocr_refused_total {self.refused}",
        ]
        return "\n".join(lines) + "\n"
