/*
 * openai_client.mjs NODE_MODULES URL SCENE: the package `openai` as its users use it. SCENE is `stub` (the worker does what
 * its prompts say) or `ember`. Says `ok NAME` for each test; exit status 1 if one fails.
 */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, url, scene] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);
const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0, timeout: 120000 });
const stub = scene === "stub";
const model = (await client.models.list()).data[0].id;

/* What each scene says so that the same thing happens. */
const words = stub
    ? { chat: "say hello say there", long: "say a hang", tool: 'think why call get_weather args {"city": args "Paris"} called' }
    : { chat: "What is hearth?", long: "Count from one to nine.", tool: "What is the weather in Paris?" };
const result = stub ? "say sunny" : JSON.stringify({ temperature: 21, condition: "sun" });
const weather = {
    type: "function",
    function: {
        name: "get_weather",
        description: "Get the weather in a city",
        parameters: { type: "object", properties: { city: { type: "string", description: "The city" } }, required: ["city"] },
    },
};
const flatWeather = { type: "function", ...weather.function, strict: false };
/* `output_text` is the package's own, and it makes none for a stream's last response. */
const textOf = (response) => response.output.flatMap((item) => (item.type === "message" ? item.content : [])).map((part) => part.text).join("");
const ask = (content, more) => ({ model, messages: [{ role: "user", content }], temperature: 0, ...more });

const tests = {
    async "chat, whole and streamed"() {
        const whole = await client.chat.completions.create(ask(words.chat));
        assert.equal(whole.choices[0].finish_reason, "stop");
        assert.ok(whole.choices[0].message.content.length > 0);
        const stream = await client.chat.completions.create(ask(words.chat, { stream: true, stream_options: { include_usage: true } }));
        let text = "", usages = [];
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta?.content ?? "";
            if (chunk.usage) {
                usages.push(chunk.usage);
            }
        }
        assert.equal(text, whole.choices[0].message.content);
        assert.equal(usages.length, 1);
        assert.equal(usages[0].total_tokens, whole.usage.total_tokens);
    },

    async "the stream helper puts a message together"() {
        const stream = client.chat.completions.stream(ask(words.tool, { tools: [weather] }));
        const message = await stream.finalMessage();
        assert.equal(message.tool_calls.length, 1);
        assert.equal(message.tool_calls[0].function.name, "get_weather");
        assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
        const whole = await client.chat.completions.create(ask(words.tool, { tools: [weather] }));
        assert.equal(whole.choices[0].finish_reason, "tool_calls");
        assert.equal(whole.choices[0].message.tool_calls[0].function.arguments, message.tool_calls[0].function.arguments);
        if (stub) {
            assert.equal(whole.choices[0].message.reasoning_content, "why ");
        }
    },

    async "tools in a loop"() {
        for (const stream of [false, true]) {
            const asked = [];
            const runner = client.chat.completions.runTools(ask(words.tool, {
                stream,
                tools: [{
                    type: "function",
                    function: { ...weather.function, parse: JSON.parse, function: ({ city }) => { asked.push(city); return result; } },
                }],
            }));
            const text = await runner.finalContent();
            assert.deepEqual(asked, ["Paris"]);
            assert.ok(text.length > 0);
            if (stub) {
                assert.equal(text, "sunny ");
            }
        }
    },

    async "tool_choice none calls nothing"() {
        if (!stub) { /* the stub does what it is told */
            const reply = await client.chat.completions.create(ask(words.tool, { tools: [weather], tool_choice: "none" }));
            assert.equal(reply.choices[0].message.tool_calls, undefined);
            assert.notEqual(reply.choices[0].finish_reason, "tool_calls");
        }
    },

    async "a cancelled stream is cancelled in the server"() {
        const { data: stream, response } = await client.chat.completions
            .create(ask(words.long, { stream: true, ...(stub ? {} : { ignore_eos: true, max_tokens: 100000 }) })).withResponse();
        const id = response.headers.get("x-request-id");
        for await (const chunk of stream) {
            if (chunk.choices[0]?.delta?.content) {
                break; /* leaving the loop closes it */
            }
        }
        let state;
        for (let i = 0; i < 600 && state !== "gone" && state !== "done"; i++) {
            state = (await (await fetch(`${url}/v1/requests/${id}`)).json()).state;
            await new Promise((wake) => setTimeout(wake, 100));
        }
        assert.ok(state === "gone" || (!stub && state === "done")); /* a small context may end first */
    },

    async "a cancelled request is an APIUserAbortError"() {
        const abort = new AbortController();
        const reply = client.chat.completions.create(ask(words.long, stub ? {} : { ignore_eos: true, max_tokens: 100000 }), { signal: abort.signal });
        setTimeout(() => abort.abort(), 50);
        await assert.rejects(reply, stub ? OpenAI.APIUserAbortError : Error);
    },

    async "errors have the right class"() {
        const bad = ask("say a", { temperature: -1 });
        await assert.rejects(client.chat.completions.create(bad), (e) => {
            assert.ok(e instanceof OpenAI.BadRequestError);
            assert.deepEqual([e.status, e.param, e.code, e.type], [400, "temperature", "invalid_field", "invalid_request_error"]);
            return true;
        });
        await assert.rejects(client.chat.completions.create(ask("say a", { response_format: { type: "json_object" } })), (e) =>
            e instanceof OpenAI.BadRequestError && e.param === "response_format");
        await assert.rejects(client.chat.completions.create({ ...ask("say a"), model: "no-such" }), OpenAI.NotFoundError);
        await assert.rejects(client.embeddings.create({ model, input: "a" }), OpenAI.InternalServerError); /* 501 */
        if (stub) {
            await assert.rejects(client.chat.completions.create(ask("error queue_full")), OpenAI.RateLimitError);
            await assert.rejects(client.chat.completions.create(ask("error internal")), OpenAI.InternalServerError);
            const stream = await client.chat.completions.create(ask("say a error internal", { stream: true }));
            await assert.rejects(async () => { for await (const chunk of stream) { void chunk; } }, OpenAI.APIError);
        }
    },

    async "completions"() {
        const reply = await client.completions.create({ model, prompt: stub ? "say a" : "Hello", max_tokens: 4, temperature: 0 });
        assert.equal(reply.object, "text_completion");
    },

    async "responses, whole and streamed"() {
        const whole = await client.responses.create({ model, input: words.chat, store: false, temperature: 0 });
        assert.equal(whole.status, "completed");
        assert.ok(whole.output_text.length > 0);
        const stream = client.responses.stream({ model, input: words.chat, store: false, temperature: 0 });
        let text = "";
        stream.on("response.output_text.delta", (e) => { text += e.delta; });
        const last = await stream.finalResponse();
        assert.equal(text, whole.output_text);
        assert.equal(textOf(last), whole.output_text);
        await assert.rejects(client.responses.create({ model, input: "a", previous_response_id: "resp_1" }), (e) =>
            e instanceof OpenAI.BadRequestError && e.param === "previous_response_id");
    },

    async "responses: tools in a loop"() {
        for (const streamed of [false, true]) {
            const input = [{ role: "user", content: words.tool }];
            let asked = 0, text = "";
            for (let turn = 0; !text; turn++) {
                assert.ok(turn < 3);
                const request = { model, input, tools: [flatWeather], store: false, temperature: 0 };
                const reply = streamed ? await client.responses.stream(request).finalResponse() : await client.responses.create(request);
                input.push(...reply.output);
                text = textOf(reply);
                for (const call of reply.output.filter((x) => x.type === "function_call")) {
                    assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
                    input.push({ type: "function_call_output", call_id: call.call_id, output: result });
                    asked++;
                    text = "";
                }
            }
            assert.equal(asked, 1);
        }
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok ${name}`);
    } catch (e) {
        failed++;
        console.log(`FAILED ${name}\n${e?.stack ?? e}`);
    }
}
process.exit(failed ? 1 : 0);
