import { describe, expect, it } from 'vitest';

import { buildModel, dtypeNamed } from '../../src/models/build.ts';
import { parseModelConfig, readModelConfig } from '../../src/models/families.ts';
import { type JsonRecord, MAX_CONFIG_BYTES } from '../../src/models/read-config.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { refusal } from '../support/thrown.ts';
import { TINY } from './tiny.ts';

/** What a config may say, and how a wrong one is refused. */

const llama = (change: JsonRecord): JsonRecord => ({
  ...modelEntry('llama-3.1-8b').config,
  ...change,
});
const tiny = (name: string, change: JsonRecord): JsonRecord => ({
  ...(TINY[name] as JsonRecord),
  ...change,
});

describe('refusals', () => {
  it.each([
    ['num_key_value_heads', 3, 'E_TYPE', ['3', '32']],
    ['num_hidden_layers', -2, 'E_SYNTAX', ['-2', 'whole number']],
    ['num_hidden_layers', 1e9, 'E_SYNTAX', ['1000000000', '4096']],
    ['hidden_size', '4096', 'E_SYNTAX', ['"4096"', 'whole number']],
    ['hidden_size', 4095, 'E_TYPE', ['4095', '32']],
    ['vocab_size', 1.5, 'E_SYNTAX', ['1.5']],
    ['tie_word_embeddings', 'yes', 'E_SYNTAX', ['"yes"', 'true or false']],
    ['hidden_act', 'softsign', 'E_UNSUPPORTED', ['softsign']],
    ['q_lora_rank', 512, 'E_UNSUPPORTED', ['llama']],
    ['num_local_experts', 8, 'E_UNSUPPORTED', ['llama']],
  ])('%s = %j is %s with its JSON path', (name, value, code, words) => {
    const error = refusal(() => readModelConfig(llama({ [name]: value })));
    expect(error.code).toBe(code);
    expect(error.details.path).toBe(`$.${name}`);
    for (const word of words) expect(error.message).toContain(word);
  });

  it('an unknown family is named, with a near one', () => {
    const error = refusal(() => readModelConfig({ model_type: 'lama' }));
    expect(error.code).toBe('E_UNSUPPORTED');
    expect(error.message).toContain("'lama'");
    expect(error.details.hint).toContain("did you mean 'llama'");
    expect(
      refusal(() => readModelConfig({ architectures: ['MambaForCausalLM'] })).message,
    ).toContain('MambaForCausalLM');
    expect(refusal(() => readModelConfig({ vocab_size: 3 })).details.path).toBe('$.model_type');
    expect(refusal(() => readModelConfig({ model_type: '__proto__' })).code).toBe('E_UNSUPPORTED');
  });

  it.each([
    ['llama', 'LlamaForQuestionAnswering'],
    ['llama', 'LlamaModel'],
    ['qwen3_moe', 'Qwen3MoeForQuestionAnswering'],
    ['gpt2', 'GPT2ForQuestionAnswering'],
    ['gpt2', 'GPT2DoubleHeadsModel'],
    ['opt', 'OPTForSequenceClassification'],
    ['bloom', 'BloomForTokenClassification'],
    ['t5', 'T5EncoderModel'],
    ['whisper', 'WhisperForAudioClassification'],
    ['bert', 'BertForQuestionAnswering'],
    ['vit', 'ViTForMaskedImageModeling'],
  ])('a config of %s for a head that is not built is refused by its class: %s', (type, name) => {
    const error = refusal(() =>
      readModelConfig({
        ...(TINY[type] as JsonRecord),
        architectures: [name],
      }),
    );
    expect(error.code).toBe('E_UNSUPPORTED');
    expect(error.message).toContain(`$.architectures[0] is '${name}'`);
  });

  it('more dense layers than layers: both numbers', () => {
    const error = refusal(() =>
      readModelConfig({ ...modelEntry('deepseek-v3').config, first_k_dense_replace: 62 }),
    );
    expect(error.code).toBe('E_TYPE');
    expect(error.message).toContain('62');
    expect(error.message).toContain('61');
  });

  it('text that is not JSON: line and column; a list; too long', () => {
    const broken = refusal(() =>
      parseModelConfig('{\n "model_type": "llama",\n "x": }\n', 'config.json'),
    );
    expect(broken.code).toBe('E_SYNTAX');
    expect(broken.details.position?.line).toBe(3);
    expect(refusal(() => parseModelConfig('[1]')).code).toBe('E_SYNTAX');
    expect(refusal(() => parseModelConfig(' '.repeat(MAX_CONFIG_BYTES + 1))).code).toBe('E_LIMIT');
    expect(refusal(() => parseModelConfig('['.repeat(100000))).code).toBe('E_SYNTAX');
  });

  it('a missing size is named', () => {
    const error = refusal(() => readModelConfig({ model_type: 'gpt2', n_embd: 64, n_head: 4 }));
    expect(error.message).toContain('vocab_size is missing');
  });

  it('sizes of the program: out of range, or beyond a table of positions', () => {
    const gpt2 = readModelConfig(TINY.gpt2 as JsonRecord);
    expect(refusal(() => buildModel(gpt2, { batch: 0 })).code).toBe('E_LIMIT');
    expect(refusal(() => buildModel(gpt2, { layers: 5000 })).code).toBe('E_LIMIT');
    const long = refusal(() => buildModel(gpt2, { seq: 65 }));
    expect(long.code).toBe('E_TYPE');
    expect(long.message).toContain('65');
    expect(long.message).toContain('64');
    expect(refusal(() => dtypeNamed('int8')).code).toBe('E_UNSUPPORTED');
  });
});

describe('what a config may say', () => {
  it('old and new spellings give one graph', () => {
    const old = readModelConfig(
      tiny('llama', { torch_dtype: 'float32', rope_theta: 10000, rope_scaling: null }),
    );
    const fresh = readModelConfig(
      tiny('llama', {
        dtype: 'float32',
        rope_parameters: { rope_theta: 10000, rope_type: 'default' },
      }),
    );
    const [a, b] = [buildModel(old, { batch: 1, seq: 8 }), buildModel(fresh, { batch: 1, seq: 8 })];
    expect(b.nodes.map((n) => [n.name, n.target, n.type])).toEqual(
      a.nodes.map((n) => [n.name, n.target, n.type]),
    );
    expect(a.nodes.find((n) => n.meta.roleName === 'lm_head.weight')?.type).toMatchObject({
      dtype: 'f32',
    });
  });

  it('a multimodal config gives its text tower, and says so', () => {
    const { model_type: _, ...text } = TINY.gemma3_text;
    const config = readModelConfig({
      model_type: 'gemma3',
      text_config: text as JsonRecord,
      vision_config: {},
    });
    expect(config.type).toBe('gemma3_text');
    expect(config.notes.join()).toContain('text tower');
    const plain = buildModel(readModelConfig(TINY.gemma3_text as JsonRecord), {
      batch: 1,
      seq: 16,
    });
    expect(buildModel(config, { batch: 1, seq: 16 }).nodes.map((n) => n.target)).toEqual(
      plain.nodes.map((n) => n.target),
    );
  });

  it('defaults taken and keys without effect are listed, also in the notes of the graph', () => {
    const config = readModelConfig(tiny('llama', { bos_token_id: 1, num_key_value_heads: null }));
    expect(config.defaults).toContain('num_key_value_heads = 4');
    expect(config.ignored).toEqual(['bos_token_id']);
    const notes = (buildModel(config).notes ?? []).join('\n');
    expect(notes).toContain('batch 8, sequence 256, bf16, 2 layers, inference');
    expect(notes).toContain('num_key_value_heads = 4');
    expect(notes).toContain('bos_token_id');
  });

  it('the family by the class, where there is no model_type', () => {
    const { model_type: _, ...rest } = TINY.qwen3_moe as JsonRecord;
    expect(readModelConfig({ ...rest, architectures: ['Qwen3MoeForCausalLM'] }).type).toBe(
      'qwen3_moe',
    );
  });

  it('a sliding window makes a mask only where a sequence leaves it', () => {
    const masked = (seq: number): number =>
      buildModel(readModelConfig(TINY.mistral as JsonRecord), { batch: 1, seq }).nodes.filter(
        (n) => n.target === 'aten.lt.Tensor' || n.target === 'aten.lt.Scalar',
      ).length;
    expect(masked(8)).toBe(0);
    expect(masked(16)).toBe(1);
  });
});
