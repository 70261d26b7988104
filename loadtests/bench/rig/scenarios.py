"""The loads that every proxy is put under."""

from dataclasses import dataclass

UNARY, STREAM = "unary", "stream"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load: how the worker is paced, what the generator sends, and for how long it is measured.

    `per_second` is the offered load where there is one (requests or tokens): a proxy that falls behind
    it is not compared on latency.
    """

    name: str
    title: str
    mode: str
    load: tuple[str, ...]
    first_token_ms: float = 0
    token_ms: float = 0
    seconds: float = 8
    warmup: float = 1
    per_second: float | None = None

    @property
    def closed_loop(self) -> bool:
        return "--conc" in self.load and self.per_second is None

    def arguments(self, port: int, seconds: float, warmup: float) -> list[str]:
        """The generator's command line against a port."""
        times = ["--duration", f"{seconds:.2f}", "--warmup", f"{warmup:.2f}"]
        return ["--target", f"127.0.0.1:{port}", "--mode", self.mode, *self.load, *times]


_LONG = ("--conc", "8", "--body-bytes", "100000")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("S1", "unary, closed loop, 32 connections", UNARY, ("--conc", "32")),
        Scenario(
            "S2", "unary, open loop 200/s, worker takes 5 ms", UNARY, ("--rate", "200"),
            first_token_ms=5, per_second=200,
        ),
        Scenario(
            "S3", "200 streams of 64 tokens, one each 20 ms", STREAM, ("--conc", "200", "--tokens", "64"),
            # 200 streams, each of 64 tokens in 50 + 63 * 20 ms
            first_token_ms=50, token_ms=20, seconds=12, warmup=2, per_second=9770,
        ),
        Scenario("S4", "32 streams of 256 unpaced tokens", STREAM, ("--conc", "32", "--tokens", "256")),
        Scenario("S5", "unary, body of 100 KB in one message", UNARY, _LONG),
        Scenario("S5m", "unary, body of 100 KB in 450 messages", UNARY, (*_LONG, "--shape", "messages")),
        Scenario("S5u", "unary, body of 100 KB of non-ASCII text", UNARY, (*_LONG, "--shape", "unicode")),
    )
}  # fmt: skip
