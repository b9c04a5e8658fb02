// answers.mjs DIRECTORY TEXT: candidates of the text's mask and the text's vector, as JSON, from what
// `maskwright-export --format transformers` wrote.

import { basename, dirname } from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [directory, text] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = dirname(directory) + "/";
const how = { dtype: "fp32" };
const fill = await pipeline("fill-mask", basename(directory), how);
const embed = await pipeline("feature-extraction", basename(directory), how);
const candidates = await fill(text, { top_k: 5 });
const vector = await embed(text, { pooling: "mean", normalize: true });
console.log(JSON.stringify({ candidates, vector: Array.from(vector.data) }));
