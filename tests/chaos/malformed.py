"""malformed: what no good client sends, and what may come back (FAILURES I3, P6): an error of 4xx or 501 in bounded time, or a closed
connection where there is nothing that could be answered; never 500, never another one's trouble."""
import json

from raw_http import request

REFUSED = frozenset((400, 401, 404, 405, 408, 411, 413, 414, 417, 429, 431, 501, 505))
BAD_FIELDS = [{"max_tokens": -1}, {"max_tokens": 1e308}, {"max_tokens": "x"}, {"temperature": -1}, {"temperature": "hot"}, {"top_p": 0},
              {"top_p": 2}, {"n": 0}, {"n": 17}, {"n": 2 ** 63}, {"seed": -1}, {"seed": 2 ** 63 - 1}, {"stop": [""]}, {"stop": 5},
              {"stop": ["x"] * 1001}, {"logit_bias": {"999999": 1}}, {"logit_bias": {"x": 1}}, {"logit_bias": {"1": 101}},
              {"stream": "yes"}, {"logprobs": 21}, {"prompt": []}, {"prompt": [-1]}, {"prompt": [2 ** 31]}, {"prompt": {}},
              {"prompt": [1, "a"]}, {"priority": 11}, {"repetition_guard": 5}, {"hearth": 1}, {"hearth": {"deadline_ms": 0}},
              {"hearth": {"x": 1}}, {"grammar": "root ::= "}, {"session_id": "a/b"}, {"session_id": "", "n": 2}, {"best_of": 2, "n": 1},
              {"model": "nobody"}, {"model": 5}, {"echo": 1}, {"no_such_field": None, "other": 1}, {"repetition_penalty": 0},
              {"stop_token_ids": list(range(65))}, {"min_tokens": -1}, {"suffix": "a"}, {"prompt": [0] * 9000}]
BAD_CHATS = [{"messages": []}, {"messages": "hello"}, {"messages": [{"role": "nobody", "content": "x"}]}, {"messages": [5]},
             {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": 5}]}, {"tools": {}}, {"tools": [5]},
             {"tool_choice": "always"}, {"tools": [{"type": "function", "function": {"name": ""}}]}, {"functions": [{"name": "f"}]},
             {"response_format": {"type": "nothing"}}, {"reasoning_effort": "huge"}, {"max_tokens": 0}, {"audio": {}},
             {"messages": [{"role": "user", "content": "a " * 9000}]}]


def truncated_json(dice):
    text = json.dumps({"prompt": "x" * dice.randrange(1, 300), "max_tokens": 5})
    return text[:dice.randrange(len(text))].encode()


def bad_body(dice, key):
    """A whole request that is refused for what is in it: (bytes, statuses)."""
    which = dice.randrange(6)
    path = dice.choice(("/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize", "/apply-template"))
    if which == 0:
        return request("POST", path, truncated_json(dice), key=key), {400}
    if which == 1:
        return request("POST", path, dice.randbytes(dice.randrange(1, 4000)), key=key), {400}
    if which == 2:
        return request("POST", path, b"[" * dice.choice((1, 257, 10000)), key=key), {400}
    if which == 3:
        base = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
        return request("POST", "/v1/chat/completions", {**base, **dice.choice(BAD_CHATS)}, key=key), {400, 404}
    if which == 4:
        return request("POST", "/tokenize", dice.choice(({"content": 1}, {}, {"content": "a", "x": 1}, {"tokens": [1]})), key=key), {400}
    return request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, **dice.choice(BAD_FIELDS)}, key=key), {400, 404}


def bad_http(dice, key):
    """(bytes, statuses, whether the client shuts its side then)."""
    post = "POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + f"Authorization: Bearer {key}\r\n"
    kinds = [
        (dice.randbytes(dice.randrange(1, 3000)), True), (b"\r\n" * dice.randrange(1, 5000), True), (b"\x16\x03\x01\x02" + dice.randbytes(500), True),
        (b"GET / HTTP/3.7\r\n\r\n", False), (b"GET\r\n\r\n", False), (b"BREW /health HTTP/1.1\r\nHost: h\r\n\r\n", False),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", False),
        (("GET /v1/models HTTP/1.1\r\n" + "".join(f"X-{i}: {'y' * 500}\r\n" for i in range(500)) + "\r\n").encode(), False),
        (post.encode() + b"X: " + b"z" * 300000 + b"\r\n\r\n", False),
        ((post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef").encode(), False),
        ((post + "Content-Length: -5\r\n\r\n").encode(), False), ((post + "Content-Length: 99999999999999999999\r\n\r\n").encode(), False),
        ((post + "Content-Length: 50000000\r\n\r\n").encode() + b"x" * 20000, False),
        ((post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzz\r\n").encode(), True),
        ((post + "Transfer-Encoding: chunked\r\n\r\nZZZ\r\nabc\r\n").encode(), True),
        ((post + "Content-Length: 400\r\n\r\n{\"prompt\":").encode(), True),  # and no more
        (b"GET /v1/nothing HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer nobody\r\nConnection: close\r\n\r\n", False),
        (request("DELETE", "/v1/completions", key=key), False), (request("GET", "/v1/requests/none", key=key), False),
        (request("GET", "/v1/sessions/..%2f..", key=key), False), (request("POST", "/v1/embeddings", {}, key=key), False),
        (request("POST", "/v1/completions", {"prompt": "a"}, key="wrong"), False),
        (request("PUT", "/v1/sessions/imported/import", dice.randbytes(900), key=key), False),
    ]
    data, shut = dice.choice(kinds)
    return data, REFUSED, shut
