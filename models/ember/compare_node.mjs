/*
 * The F32 export, greedily, in node-llama-cpp (pinned 3.21.1, a test tool only) and in hearth: the same tokens?
 *
 *     mkdir /tmp/nlc && cd /tmp/nlc && npm init -y && npm install node-llama-cpp@3.21.1
 *     ./export.py --dir DIR --f32 -o /tmp/ember-f32.gguf
 *     NODE_MODULES=/tmp/nlc/node_modules node compare_node.mjs PATH/hearth /tmp/ember-f32.gguf
 *
 * Both keep keys and values in F32. Where the two part, the difference of the two tokens' logits in node-llama-cpp is
 * printed: below 1e-3 it is a tie, and the prompt counts as equal up to there.
 */
import {execFileSync} from "node:child_process";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [hearth, file] = process.argv.slice(2);
const entry = path.join(process.env.NODE_MODULES ?? "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama} = await import(pathToFileURL(entry).href);
const MOST = 80;

const requests = [
    "hi", "Who are you?", "what can you do", "What is hearth?", "what does hearth serve do?", "tell me a story about a fox",
    "Tell me a story about a penguin.", "what is 7*8", "What is 47 + 38?", "spell elephant", "say the boat is in the harbour",
    "name five animals", "what is the capital of France", "why is the sky blue?", "think first: what is 27 + 35",
    "make a JSON object for a person called Ann, 31 years old", "write a poem about the sea", "who won the match yesterday",
    "count to twelve", "name the planets"];
const prompts = requests.map((r) => `<|im_start|>user\n${r}<|im_end|>\n<|im_start|>assistant\n`);

function ours(prompt) {
    const out = execFileSync(hearth, ["run", "--raw", "-m", file, "--kv-type", "f32", "--json", "-n", String(MOST), "-p", prompt],
        {stdio: ["ignore", "pipe", "ignore"]});
    return JSON.parse(out);
}

async function theirs(model, sequence, prompt) {
    await sequence.clearHistory();
    const ids = model.tokenize(prompt, true);
    const steps = [];
    for await (const step of sequence.evaluateWithMetadata(ids, {probabilities: true}, {temperature: 0})) {
        if (model.isEogToken(step.token) || steps.length === MOST) {
            steps.push(step);
            break;
        }
        steps.push(step);
    }
    return {ids, steps};
}

const llama = await getLlama({gpu: false, build: "never"});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({contextSize: 1024, flashAttention: false, experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32", threads: 1});
const sequence = context.getSequence();
let same = 0, ties = 0;
for (const [i, prompt] of prompts.entries()) {
    const a = ours(prompt);
    const b = await theirs(model, sequence, prompt);
    const tokens = b.steps.map((s) => s.token).filter((t) => !model.isEogToken(t)).slice(0, MOST);
    const at = a.ids.findIndex((id, k) => id !== tokens[k]);
    const promptSame = JSON.stringify(a.prompt_ids) === JSON.stringify(b.ids);
    const mine = a.ids.filter((id) => !model.isEogToken(id));
    if (promptSame && JSON.stringify(mine) === JSON.stringify(tokens)) {
        same++;
        console.log(`same   ${mine.length} tokens  ${requests[i]}`);
        continue;
    }
    const k = at < 0 ? a.ids.length : at;
    const p = b.steps[k]?.probabilities;
    const gap = p ? Math.abs(Math.log(p.get(b.steps[k].token)) - Math.log(p.get(a.ids[k]))) : NaN;
    const tie = promptSame && gap < 1e-3;
    ties += tie;
    console.log(`${tie ? "tie   " : "DIFFER"} at ${k}, logits differ by ${gap}  ${requests[i]}` + (promptSame ? "" : "  (prompt ids differ)"));
}
console.log(`${same} same, ${ties} ties, ${prompts.length - same - ties} different`);
process.exit(same + ties === prompts.length ? 0 : 1);
