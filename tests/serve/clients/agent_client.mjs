/*
 * agent_client.mjs NODE_MODULES URL SCENE: the agent library `ai` with its provider @ai-sdk/openai-compatible. Scenes and
 * what is printed are those of openai_client.mjs.
 */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, url, scene] = process.argv.slice(2);
const require = createRequire(modules + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, streamText, jsonSchema, tool, stepCountIs, APICallError } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const stub = scene === "stub";
const name = (await (await fetch(url + "/v1/models")).json()).data[0].id;
const provider = createOpenAICompatible({ name: "hearth", baseURL: url + "/v1", includeUsage: true });
const asked = [];
const agent = {
    model: provider(name),
    temperature: 0,
    maxRetries: 0,
    stopWhen: stepCountIs(4),
    prompt: stub ? 'think why call get_weather args {"city": args "Paris"} called' : "What is the weather in Paris?",
    tools: {
        get_weather: tool({
            description: "Get the weather in a city",
            inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string", description: "The city" } }, required: ["city"] }),
            execute: async ({ city }) => {
                asked.push(city);
                return stub ? "say sunny" : { temperature: 21, condition: "sun" };
            },
        }),
    },
};
let whole;

const tests = {
    async "tools in a loop"() {
        const reply = await generateText(agent);
        assert.deepEqual(asked.splice(0), ["Paris"]);
        assert.equal(reply.steps.length, 2);
        assert.deepEqual(reply.steps.map((s) => s.finishReason), ["tool-calls", "stop"]);
        assert.ok(reply.text.length > 0);
        if (stub) {
            assert.equal(reply.steps[0].reasoningText, "why ");
        }
        whole = reply;
    },

    async "tools in a streamed loop"() {
        const reply = streamText(agent);
        let text = "";
        for await (const piece of reply.textStream) {
            text += piece;
        }
        assert.deepEqual(asked.splice(0), ["Paris"]);
        assert.equal(text, whole.text);
        assert.equal((await reply.steps).length, 2);
        assert.equal((await reply.totalUsage).totalTokens, whole.totalUsage.totalTokens);
    },

    async "an aborted stream ends"() {
        const abort = new AbortController();
        const reply = streamText({
            model: agent.model, maxRetries: 0, abortSignal: abort.signal, onError() {},
            prompt: stub ? "say a hang" : "Tell me a story about a fox.",
        });
        let pieces = 0;
        for await (const part of reply.fullStream) {
            if (part.type === "text-delta" && ++pieces === 1) {
                abort.abort();
            }
        }
        assert.ok(pieces > 0);
    },

    async "an error has its status"() {
        await assert.rejects(generateText({ ...agent, temperature: -1 }), (e) => {
            assert.ok(APICallError.isInstance(e));
            assert.deepEqual([e.statusCode, e.isRetryable], [400, false]);
            assert.match(e.message, /temperature/);
            return true;
        });
    },
};

let failed = 0;
for (const [test, run] of Object.entries(tests)) {
    try {
        await run();
        console.log(`ok ${test}`);
    } catch (e) {
        failed++;
        console.log(`FAILED ${test}\n${e?.stack ?? e}`);
    }
}
process.exit(failed ? 1 : 0);
