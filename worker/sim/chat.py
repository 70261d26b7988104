"""`/v1/chat/completions`: from the body to sequences."""

from __future__ import annotations

from tailrace.worker.sim.answer import Asked
from tailrace.worker.sim.chat_stream import ChatStream
from tailrace.worker.sim.chat_unary import ChatUnary
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.errors import bad_request, draining, invalid
from tailrace.worker.sim.exchange import Exchange
from tailrace.worker.sim.options import read_options
from tailrace.worker.sim.plan import plan_for
from tailrace.worker.sim.template import read_opening
from tailrace.worker.sim.validation import Body, boolean, integer, json_body, required


def chat_completions(engine: Engine, exchange: Exchange) -> None:
    """Answer a chat request."""
    body = json_body(exchange.request.body, exchange.request.headers.get(b"content-type", b""))
    asked = read_chat(engine, body)
    if engine.state == "draining":
        raise draining()
    shape = ChatStream if asked.options.stream else ChatUnary
    shape(engine, exchange, asked, "chatcmpl-").start()


def read_chat(engine: Engine, body: Body) -> Asked:
    """Check a chat request; refuses in the order in which vLLM does."""
    messages = required(body, "messages")
    if not isinstance(messages, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list", messages)
    options = read_options(body, limits=("max_completion_tokens", "max_tokens"), logprobs=_logprobs(body))
    opening = read_opening(body)
    # What concerns tools is wrong before anything is known of the prompt.
    plan_for(body, ())
    model = engine.resolve(body.get("model"))
    prompt = opening.prompt(messages, model)
    sampling = options.sampling(len(prompt), engine.settings.max_model_len)
    return Asked(model=model, prompts=[prompt], sampling=sampling, options=options, plan=plan_for(body, prompt))


def _logprobs(body: Body) -> int | None:
    top = integer(body, "top_logprobs")
    if boolean(body, "logprobs"):
        return top or 0
    if top:
        message = "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)"
        raise bad_request(message, "top_logprobs")
    return None
