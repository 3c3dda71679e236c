"""Conversations with tools, in the layout of chat_template.jinja."""
import json

import facts
from ask import ask, capital
from skills import MINUS, OVER, PLUS, TIMES
from words import CITIES, NAMES, NOUNS, invent

SYSTEM = ("You may call these tools:\n<tools>\n{tools}\n</tools>\n"
          "To call one, answer with its name and arguments as JSON:\n"
          '<tool_call>\n{{"name": "...", "arguments": {{...}}}}\n</tool_call>')
SKIES = ("sun", "rain", "snow", "clouds", "fog", "wind", "clear sky", "light rain", "storm", "showers")


def tool(rng, name, description, params):
    """The usual JSON description of a function; the order of its keys varies as it does among clients."""
    properties = {}
    for key, (kind, text) in params.items():
        properties[key] = {"type": kind, "description": text} if text else {"type": kind}
    schema = {"type": "object", "properties": properties}
    if rng.random() < 0.85:
        schema["required"] = list(params)[:1]
    function = {"name": name, "description": description, "parameters": schema}
    if rng.random() < 0.1:
        function = {"description": description, "name": name, "parameters": schema}
    if rng.random() < 0.1:
        del function["description"]
    if rng.random() < 0.15:
        return {"function": function, "type": "function"}
    return {"type": "function", "function": function}


def maybe(rng, text):
    return text if rng.random() < 0.6 else None


def weather_tool(rng):
    key = rng.choice(("city", "city", "city", "location", "place", "town"))
    params = {key: ("string", maybe(rng, rng.choice(("The city", "Name of the city", "The city, e.g. Paris", "City name"))))}
    if rng.random() < 0.15:
        params["unit"] = ("string", maybe(rng, "celsius or fahrenheit"))
    text = rng.choice(("Get the weather in a city", "Get the current weather", "Returns the weather of a place",
                       "Get current weather for a location", "Look up the weather", "Tells the weather in a city"))
    return tool(rng, "get_weather", text, params), key


def calculate_tool(rng):
    key = rng.choice(("expression", "expression", "expression", "expr", "formula", "input"))
    text = rng.choice(("Calculate an expression", "Evaluate an arithmetic expression", "A calculator",
                       "Computes a mathematical expression", "Evaluate a math expression", "Does arithmetic"))
    return tool(rng, "calculate", text, {key: ("string", maybe(rng, rng.choice(
        ("The expression", "An arithmetic expression, e.g. 2 * 3", "What to calculate"))))}), key


def time_tool(rng):
    key = rng.choice(("city", "place", "zone"))
    return tool(rng, "get_time", rng.choice(("Get the time in a city", "Current time of a place")),
                {key: ("string", maybe(rng, "The city"))}), key


def search_tool(rng):
    key = rng.choice(("query", "text", "q"))
    return tool(rng, rng.choice(("search", "web_search", "find")), rng.choice(("Search the web", "Find something")),
                {key: ("string", maybe(rng, "What to look for"))}), key


def odd_tool(rng):
    """A tool that nobody asks for: it is there to be left alone."""
    name = rng.choice(("send_mail", "open_door", "play_music", "set_alarm", "read_file", "list_files", "get_news", "translate"))
    return tool(rng, name, rng.choice(("Does what its name says", "A tool", "For the house")),
                {rng.choice(("name", "text", "path", "value")): ("string", None)}), None


WEATHER_ASK = ("what is the weather in {c}|weather in {c}|how is the weather in {c}|what's the weather like in {c}"
               "|is it raining in {c}|tell me the weather in {c}|what is the weather like in {c} today|is it cold in {c}"
               "|how warm is it in {c}|what is the temperature in {c}|do i need an umbrella in {c}|check the weather in {c}"
               "|will it rain in {c}|is it sunny in {c}|weather {c}|how hot is it in {c}|i am going to {c}, how is the weather"
               "|get the weather for {c}|look up the weather in {c}|please tell me how the weather is in {c}"
               "|what is the weather in {c} right now|current weather in {c}|does it snow in {c}")
TIME_ASK = "what time is it in {c}|time in {c}|what is the time in {c}|tell me the time in {c}|how late is it in {c}"
SEARCH_ASK = "search for {t}|look up {t}|find {t}|search the web for {t}|can you look up {t}|please search for {t}"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


def response(text):
    return f"<tool_response>\n{text}\n</tool_response>"


def weather(rng, key):
    city = rng.choice(CITIES) if rng.random() < 0.75 else invent(rng, True)
    degrees, sky = rng.randrange(-15, 40), rng.choice(SKIES)
    result, answer = rng.choice((
        (json.dumps({"temperature": degrees, "condition": sky}), f"In {city} it is {degrees} degrees with {sky}."),
        (json.dumps({key: city, "temperature": degrees, "condition": sky}), f"In {city} it is {degrees} degrees with {sky}."),
        (json.dumps({"temp": degrees, "sky": sky}), f"In {city} it is {degrees} degrees with {sky}."),
        (json.dumps({"temperature": degrees}), f"In {city} it is {degrees} degrees."),
        (f"{degrees} degrees, {sky}", f"In {city} it is {degrees} degrees with {sky}."),
        (f"{sky}, {degrees} C", f"In {city} it is {degrees} degrees with {sky}."),
        (json.dumps({"temperature_c": degrees, "description": sky}), f"In {city} it is {degrees} degrees with {sky}.")))
    if rng.random() < 0.06:
        result, answer = json.dumps({"error": "not found"}), f"The tool did not find the weather in {city}."
    q = ask(rng, WEATHER_ASK, fold=False, c=city)
    if rng.random() < 0.1:
        q = q.replace(city, city.lower())
    turns = [("user", q), ("assistant", call("get_weather", **{key: city})), ("user", response(result)), ("assistant", answer)]
    if rng.random() < 0.2:
        other = rng.choice([c for c in CITIES if c != city])
        degrees, sky = rng.randrange(-15, 40), rng.choice(SKIES)
        turns += [("user", ask(rng, "and in {c}|and {c}|what about {c}|now {c}|how about {c}", fold=False, c=other)),
                  ("assistant", call("get_weather", **{key: other})),
                  ("user", response(json.dumps({"temperature": degrees, "condition": sky}))),
                  ("assistant", f"In {other} it is {degrees} degrees with {sky}.")]
    return turns


def calculation(rng, key):
    op = rng.choice("++--***/")
    size = rng.choice((10, 100, 1000, 10000))
    a, b = rng.randrange(1, size), rng.randrange(1, max(10, size // rng.choice((1, 10))))
    templates = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER}[op]
    expression = f"{a} {op} {b}"
    q = ask(rng, templates, a=a, b=b)
    if rng.random() < 0.15:
        c, op2 = rng.randrange(1, 100), rng.choice("+-*")
        expression = f"{a} {op} {b} {op2} {c}"
        q = ask(rng, "what is {e}|{e}|calculate {e}|compute {e}|how much is {e}", e=expression)
    value = eval(expression)  # numbers and operators made above
    value = round(value, 4) if isinstance(value, float) else value
    value = int(value) if isinstance(value, float) and value == int(value) else value
    result = rng.choice((json.dumps({"result": value}), str(value), json.dumps({"value": value}), json.dumps({"result": value})))
    answer = f"{expression} = {value}."
    if rng.random() < 0.05:
        result, answer = json.dumps({"error": "bad expression"}), "The tool could not calculate that."
    return [("user", q), ("assistant", call("calculate", **{key: expression})), ("user", response(result)),
            ("assistant", answer)]


def time_of(rng, key):
    city = rng.choice(CITIES)
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    return [("user", ask(rng, TIME_ASK, fold=False, c=city)), ("assistant", call("get_time", **{key: city})),
            ("user", response(rng.choice((json.dumps({"time": clock}), clock)))), ("assistant", f"In {city} it is {clock}.")]


def search(rng, name, key):
    text = rng.choice((f"{rng.choice(NOUNS)}s in {rng.choice(CITIES)}", f"{rng.choice(NAMES)} {invent(rng, True)}",
                       f"the best {rng.choice(NOUNS)}", invent(rng)))
    found = rng.choice((f"{capital(text)}: {rng.randrange(2, 90)} pages.", f"{invent(rng, True)} is {facts.an(rng.choice(NOUNS))}.",
                        "Nothing found."))
    return [("user", ask(rng, SEARCH_ASK, fold=False, t=text)), ("assistant", call(name, **{key: text})),
            ("user", response(rng.choice((found, json.dumps({"result": found}))))), ("assistant", found)]


def tool_conversation(rng, others, plain_system=None):
    """[(role, text)], the system turn with its tools included. others: skills that need no tool."""
    makers = {"weather": weather_tool, "calculate": calculate_tool, "time": time_tool, "search": search_tool, "odd": odd_tool}
    r = rng.random()
    if r < 0.45:
        chosen = ["weather", "calculate"]
    elif r < 0.6:
        chosen = ["weather"]
    elif r < 0.75:
        chosen = ["calculate"]
    else:
        chosen = rng.sample(list(makers), rng.choice((1, 2, 2, 3)))
    rng.shuffle(chosen)
    if r < 0.6 and chosen[0] == "calculate" and rng.random() < 0.4:
        chosen.reverse()
    made = {c: makers[c](rng) for c in chosen}
    text = SYSTEM.format(tools="\n".join(json.dumps(made[c][0]) for c in chosen))
    if plain_system:
        text = plain_system + "\n\n" + text
    turns = [("system", text)]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        use = rng.choice(chosen)
        if rng.random() < 0.15 or use == "odd":
            pairs = rng.choice(others)(rng)[:1]
            turns += [t for q, a in pairs for t in (("user", q), ("assistant", a))]
        elif use == "weather":
            turns += weather(rng, made[use][1])
        elif use == "calculate":
            turns += calculation(rng, made[use][1])
        elif use == "time":
            turns += time_of(rng, made[use][1])
        else:
            turns += search(rng, made[use][0]["function"]["name"], made[use][1])
    return turns
