/**
 * The measured runs of the gallery: rows of `test/fixtures/runs`, each with the name that people
 * know it by. They were chosen for their fame.
 */
export const FAMOUS_RUNS: Readonly<Record<string, string>> = {
  r0084: 'GPT-3 175B, Megatron-LM with selective recomputation',
  r0058: 'GPT 530B, Megatron-LM at SC21',
  r0059: 'GPT of a trillion parameters, Megatron-LM at SC21',
  r0594: 'BLOOM, rehearsal on Jean Zay',
  r0089: 'Llama 3.1 405B, sequences of 8K',
  r0091: 'Llama 3.1 405B, sequences of 128K',
  r0002: 'Llama 3.1 8B, torchtitan on one host',
  r0014: 'Llama 3.1 405B, torchtitan in float8',
  r0095: 'MPT-30B, MosaicML',
  r0487: 'DeepSeek-V3, Megatron-Bridge',
  r0521: 'Kimi K2, NeMo AutoModel',
  r0637: 'MaxText, a trillion parameters on TPUs',
};
