"""What a service counts, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter, defaultdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # upper bounds


class Metrics:
    """Requests by endpoint and status, seconds by endpoint, requests in flight, refused requests.

    Used by one thread, that of the event loop.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.buckets: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.in_flight = self.refused = 0

    def observe(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[endpoint, status] += 1
        self.seconds[endpoint] += seconds
        self.buckets[endpoint][bisect_left(_BUCKETS_S, seconds)] += 1

    def __str__(self) -> str:
        lines = ["# TYPE captcha_ocr_requests_total counter"]
        for (endpoint, status), count in sorted(self.requests.items()):
            labels = f'endpoint="{endpoint}",code="{status}"'
            lines.append(f"captcha_ocr_requests_total{{{labels}}} {count}")
        name = "captcha_ocr_request_seconds"
        lines.append(f"# TYPE {name} histogram")
        bounds = [*map("{:g}".format, _BUCKETS_S), "+Inf"]
        for endpoint, counts in sorted(self.buckets.items()):
            label, total = f'endpoint="{endpoint}"', 0
            for number, bound in enumerate(bounds):
                total += counts[number]
                lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
            lines.append(f"{name}_sum{{{label}}} {self.seconds[endpoint]:.6f}")
            lines.append(f"{name}_count{{{label}}} {total}")
        lines += [
            "# TYPE captcha_ocr_in_flight gauge",
            f"captcha_ocr_in_flight {self.in_flight}",
            "# TYPE captcha_ocr_refused_total counter",
            f"captcha_ocr_refused_total {self.refused}",
        ]
        return "\n".join(lines) + "\n"
