"""reply: what an answer of a generation route says, whichever shape it has, so that two can be compared: without ids and times."""
import json


class Choice:
    def __init__(self):
        self.text, self.reasoning, self.calls, self.finish, self.true, self.guard, self.logprobs = "", "", {}, None, None, None, []

    def said(self):
        return (self.text, self.reasoning, [tuple(self.calls[i]) for i in sorted(self.calls)])


class Reply:
    """error: the code, of an answer or an event. ended: the client can know that nothing is missing."""

    def __init__(self):
        self.error, self.choices, self.usage, self.ended, self.call_ids, self.broken = None, {}, None, False, [], None

    def choice(self, index):
        return self.choices.setdefault(index, Choice())

    def whole(self):
        """All that must be equal."""
        return {i: (c.said(), c.finish, c.true, c.guard, c.logprobs) for i, c in sorted(self.choices.items())}, self.usage

    def trues(self):
        return [c.true for _, c in sorted(self.choices.items())]


def usage_of(u):
    """Without what depends on what was found: cached tokens."""
    if not u:
        return None
    out = u.get("completion_tokens_details") or u.get("output_tokens_details") or {}
    return (u.get("prompt_tokens", u.get("input_tokens")), u.get("completion_tokens", u.get("output_tokens")),
            out.get("reasoning_tokens", 0))


def flat(logprobs):
    """Entries of either shape, so that chunks can be joined."""
    if not logprobs:
        return []
    if logprobs.get("content") is not None:
        return [json.dumps(x, sort_keys=True) for x in logprobs["content"]]
    tops = logprobs.get("top_logprobs") or [None] * len(logprobs["tokens"])
    return [json.dumps(x) for x in zip(logprobs["tokens"], logprobs["token_logprobs"], tops, logprobs["text_offset"])]


def add_calls(r, choice, calls):
    for n, call in enumerate(calls or ()):
        at = choice.calls.setdefault(call.get("index", n), ["", ""])
        r.call_ids += [call["id"]] if call.get("id") else []
        at[0] += call["function"].get("name") or ""
        at[1] += call["function"].get("arguments") or ""


def add_choice(r, c):
    """One of `choices`, of an answer or a chunk."""
    to = r.choice(c["index"])
    message = c.get("message") or c.get("delta") or {}
    to.text += c.get("text") or message.get("content") or ""
    to.reasoning += message.get("reasoning_content") or ""
    add_calls(r, to, message.get("tool_calls"))
    to.logprobs += flat(c.get("logprobs"))
    if c.get("finish_reason"):
        if to.finish:
            r.broken = "a choice that ends twice"
        to.finish = c["finish_reason"]


def add_truth(r, hearth, indices):
    for i, x in zip(indices, hearth.get("choices") or [hearth]):
        r.choice(i).true, r.choice(i).guard = x.get("finish"), x.get("guard")


def from_object(body):
    r = Reply()
    if not isinstance(body, dict):
        r.broken = "no JSON object"
    elif isinstance(body.get("error"), dict):
        r.error = body["error"].get("code")
    elif body.get("object") == "response":
        from_response(r, body)
    else:
        for c in body["choices"]:
            add_choice(r, c)
        add_truth(r, body["hearth"], sorted(r.choices))
        r.usage, r.ended = usage_of(body.get("usage")), True
    return r


def from_response(r, body):
    """The object of /v1/responses."""
    c = r.choices[0] = Choice()
    for item in body["output"]:
        if item["type"] == "message":
            c.text += "".join(p["text"] for p in item["content"])
        elif item["type"] == "reasoning":
            c.reasoning += "".join(p["text"] for p in item.get("content") or ())
        else:
            c.calls[len(c.calls)] = [item["name"], item["arguments"]]
            r.call_ids.append(item["call_id"])
    c.finish = body["status"]
    add_truth(r, body.get("hearth") or {}, [0])
    r.usage, r.ended = usage_of(body.get("usage")), True
    if body.get("error"):
        r.error, r.ended = body["error"].get("code"), False


def events_of(body):
    """The events that are complete: parsed data, or "[DONE]"."""
    for part in bytes(body).decode("utf-8", "replace").split("\n\n")[:-1]:
        for line in part.split("\n"):
            if line.startswith("data: "):
                yield line[6:] if line == "data: [DONE]" else json.loads(line[6:])


def from_stream(body):
    r = Reply()
    for x in events_of(body):
        if r.ended or r.error:
            r.broken = "an event after the end"
        elif x == "[DONE]":
            r.ended = True
        elif "type" in x:
            add_event(r, x)
        elif "error" in x:
            r.error = x["error"].get("code")
        else:
            for c in x["choices"]:
                add_choice(r, c)
            if x.get("hearth"):
                add_truth(r, x["hearth"], [c["index"] for c in x["choices"]])
            r.usage = usage_of(x.get("usage")) or r.usage
    return r


def add_event(r, x):
    """One of /v1/responses."""
    kind, c = x["type"], r.choice(0)
    if kind == "response.output_text.delta":
        c.text += x["delta"]
    elif kind == "response.reasoning_text.delta":
        c.reasoning += x["delta"]
    elif kind == "response.output_item.added" and x["item"]["type"] == "function_call":
        c.calls[x["output_index"]] = [x["item"]["name"], ""]
        r.call_ids.append(x["item"]["call_id"])
    elif kind == "response.function_call_arguments.delta":
        c.calls[x["output_index"]][1] += x["delta"]
    elif kind in ("response.completed", "response.incomplete", "response.failed"):
        heard = Reply()
        from_response(heard, x["response"])
        if heard.error:
            r.error = heard.error
            return
        calls = [tuple(c.calls[i]) for i in sorted(c.calls)]
        end = heard.choice(0)
        if (c.text, c.reasoning) != (end.text, end.reasoning) or calls[:len(end.calls)] != end.said()[2]:
            r.broken = "its events do not say what its end says"
        r.choices, r.usage, r.ended = heard.choices, heard.usage, True
    elif kind == "error":
        r.error = x.get("code") or (x.get("error") or {}).get("code")


def read(answer):
    """The Reply of an Answer; of a stream that is not complete what came of it."""
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return from_stream(answer.body)
    r = Reply()
    if not answer.whole:
        return r
    return from_object(answer.json())


def is_beginning(part, whole, exact_end=False):
    """Whether one text begins another; a character that was cut is repaired at the end, so these do not count."""
    return whole.startswith(part) or whole.startswith(part.rstrip("\ufffd"))


def begins(part, whole):
    """Whether what the choices of one reply say begins what those of the other say. Returns "" or what differs."""
    for i, c in part.choices.items():
        w = whole.choices.get(i)
        if not w:
            return f"choice {i} is none"
        for name in "text", "reasoning":
            if not is_beginning(getattr(c, name), getattr(w, name)):
                return f"choice {i}: {name} {getattr(c, name)[-80:]!r} after {len(getattr(c, name))} characters"
        mine, all_calls = c.said()[2], w.said()[2]
        for n, (call, args) in enumerate(mine):
            if n >= len(all_calls) or not all_calls[n][0].startswith(call) or not all_calls[n][1].startswith(args):
                return f"choice {i}: call {n} {call} {args!r}"
        for n, (a, b) in enumerate(zip(c.logprobs, w.logprobs)):
            if a != b:
                return f"choice {i}: log probability {n}: {a}, not {b}"
    return ""
