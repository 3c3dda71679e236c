// llama.mjs MODEL THREADS PREFILL DECODE STREAMS DEPTH FLASH: the peer's side of run.py. Times node-llama-cpp (llama.cpp) on the CPU
// and prints {"prefill", "decode", "streams"} in tokens a second as one line of JSON.
//
// The tests are those of `hearth bench`: prefill is PREFILL tokens until the first sampled one; decode DECODE tokens after
// a prompt of DEPTH, at least one; streams that many replies of DECODE tokens at once, in step. FLASH: 1 takes its
// flash attention. Loading and tokenising are outside. The
// batch is 512 tokens, and so is llama.cpp's own piece (node-llama-cpp sets n_ubatch = n_batch). Sampling as in hearth bench.
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [path, ...numbers] = process.argv.slice(2);
const [threads, nPrefill, nDecode, nStreams, nDepth, flash] = numbers.map(Number);
const sampling = {temperature: 0.8, topK: 40, topP: 0.95, seed: 1, yieldEogToken: true};

const llama = await getLlama({gpu: false, maxThreads: threads, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: path});

// Ordinary ids: the same work as any others.
const prompt = (n, from) => Array.from({length: n}, (_, i) => 100 + (from + 7 * i) % 150);

async function contextOf(sequences, contextSize) {
    return await model.createContext({sequences, contextSize, batchSize: 512, threads: {ideal: threads, min: threads},
        flashAttention: flash === 1});
}

async function prefill() {
    const context = await contextOf(1, nPrefill + 64);
    const sequence = context.getSequence();
    await sequence.evaluate(prompt(64, 3), sampling).next(); // touches what is touched once
    await sequence.clearHistory();
    const reply = sequence.evaluate(prompt(nPrefill, 0), sampling);
    const start = performance.now();
    await reply.next();
    const ms = performance.now() - start;
    await reply.return();
    await context.dispose();
    return nPrefill / ms * 1e3;
}

async function decode(streams) {
    const before = Math.max(nDepth, 1);
    const context = await contextOf(streams, nDecode + before + 64);
    const replies = Array.from({length: streams}, (_, i) => context.getSequence().evaluate(prompt(before, i), sampling));
    const step = () => Promise.all(replies.map((r) => r.next()));
    await step();
    const start = performance.now();
    for (let i = 0; i < nDecode; i++)
        if ((await step()).some((r) => r.done))
            throw new Error("a reply ended early");
    const ms = performance.now() - start;
    await Promise.all(replies.map((r) => r.return()));
    await context.dispose();
    return nDecode * streams / ms * 1e3;
}

const result = {};
if (nPrefill > 0)
    result.prefill = await prefill();
result.decode = await decode(1);
if (nStreams > 1)
    result.streams = await decode(nStreams);
console.log(JSON.stringify(result));
process.exit(0); // the addon's threads need no farewell
