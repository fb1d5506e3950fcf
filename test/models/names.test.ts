import { expect, it } from 'vitest';

import { isModelName, modelEntry } from '../../src/models/registry.ts';
import { hintOf } from '../support/thrown.ts';

it.each([
  ['meta-llama/Llama-3.1-8B', 'llama-3.1-8b'],
  ['meta-llama/Meta-Llama-3.1-8B-Instruct', 'llama-3.1-8b'],
  // The config of 3.3 has the sizes of 3.1.
  ['meta-llama/Llama-3.3-70B-Instruct', 'llama-3.1-70b'],
  ['meta-llama/Llama-2-7b-chat-hf', 'llama-2-7b'],
  ['Qwen/Qwen3-14B', 'qwen3-14b'],
  ['qwen/qwen2.5-7b-instruct', 'qwen2.5-7b'],
  ['google/gemma-3-1b-it', 'gemma-3-1b'],
  ['deepseek-ai/DeepSeek-V3-0324', 'deepseek-v3'],
])('%s is %s', (id, name) => {
  expect(modelEntry(id).name).toBe(name);
});

it.each(['models/gpt2', 'openai-community/gpt2.onnx', './gpt2', 'mistralai/Mistral-7B-v0.3'])(
  '%s names no known model: it may be a file, or has other sizes',
  (path) => {
    expect(isModelName(path)).toBe(false);
  },
);

it('an unknown id of the hub gets near names', () => {
  expect(hintOf(() => modelEntry('meta-llama/Llama-3.1-7B'))).toContain("'llama-3.1-8b'");
});
