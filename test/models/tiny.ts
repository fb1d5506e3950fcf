/** A small config of every family: two or three layers, sizes that tell the dims apart. */

type Config = Readonly<Record<string, unknown>>;

const LLAMA: Config = {
  vocab_size: 512, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, max_position_embeddings: 256, rms_norm_eps: 1e-5, tie_word_embeddings: false,
}; // prettier-ignore
const EXPERTS: Config = { num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 48, norm_topk_prob: true };
const DEEPSEEK: Config = {
  ...LLAMA, num_hidden_layers: 3, num_key_value_heads: 4, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 8,
  v_head_dim: 24, first_k_dense_replace: 1, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 2,
  moe_intermediate_size: 48, n_group: 4, topk_group: 2, routed_scaling_factor: 2.5,
}; // prettier-ignore

export const TINY: Readonly<Record<string, Config>> = {
  llama: { model_type: 'llama', ...LLAMA },
  mistral: { model_type: 'mistral', ...LLAMA, sliding_window: 8 },
  qwen2: { model_type: 'qwen2', ...LLAMA, tie_word_embeddings: true },
  qwen3: { model_type: 'qwen3', ...LLAMA, head_dim: 24 },
  gemma: { model_type: 'gemma', ...LLAMA, head_dim: 32, tie_word_embeddings: true },
  gemma2: {
    model_type: 'gemma2', ...LLAMA, head_dim: 32, tie_word_embeddings: true, sliding_window: 8,
    attn_logit_softcapping: 50, final_logit_softcapping: 30, query_pre_attn_scalar: 32,
  }, // prettier-ignore
  gemma3_text: {
    model_type: 'gemma3_text', ...LLAMA, head_dim: 32, tie_word_embeddings: true, sliding_window: 8,
    num_hidden_layers: 3, sliding_window_pattern: 3,
  }, // prettier-ignore
  phi3: { model_type: 'phi3', ...LLAMA, sliding_window: 2047 },
  mixtral: { model_type: 'mixtral', ...LLAMA, num_local_experts: 4, num_experts_per_tok: 2 },
  qwen2_moe: { model_type: 'qwen2_moe', ...LLAMA, ...EXPERTS, shared_expert_intermediate_size: 80 },
  qwen3_moe: { model_type: 'qwen3_moe', ...LLAMA, ...EXPERTS, head_dim: 24, mlp_only_layers: [0] },
  gpt_oss: {
    model_type: 'gpt_oss', ...LLAMA, head_dim: 16, num_local_experts: 4, num_experts_per_tok: 2, sliding_window: 8,
  }, // prettier-ignore
  deepseek_v2: { model_type: 'deepseek_v2', ...DEEPSEEK, topk_method: 'group_limited_greedy', q_lora_rank: null },
  deepseek_v3: { model_type: 'deepseek_v3', ...DEEPSEEK, topk_method: 'noaux_tc', q_lora_rank: 40 },
  gpt2: { model_type: 'gpt2', vocab_size: 512, n_positions: 64, n_embd: 64, n_layer: 2, n_head: 4 },
  opt: {
    model_type: 'opt', vocab_size: 512, hidden_size: 64, ffn_dim: 96, num_hidden_layers: 2, num_attention_heads: 4,
    max_position_embeddings: 64, word_embed_proj_dim: 32,
  }, // prettier-ignore
  bloom: { model_type: 'bloom', vocab_size: 512, hidden_size: 48, n_layer: 2, n_head: 6 },
  bert: {
    model_type: 'bert', architectures: ['BertForMaskedLM'], vocab_size: 512, hidden_size: 64, num_hidden_layers: 2,
    num_attention_heads: 4, intermediate_size: 96, max_position_embeddings: 64, type_vocab_size: 2,
  }, // prettier-ignore
  t5: {
    model_type: 't5', vocab_size: 512, d_model: 64, d_kv: 24, d_ff: 96, num_layers: 2, num_heads: 4,
    feed_forward_proj: 'gated-gelu', tie_word_embeddings: false,
  }, // prettier-ignore
  vit: {
    model_type: 'vit', architectures: ['ViTForImageClassification'], hidden_size: 64, num_hidden_layers: 2,
    num_attention_heads: 4, intermediate_size: 96, image_size: 32, patch_size: 8, num_labels: 10,
  }, // prettier-ignore
  whisper: {
    model_type: 'whisper', vocab_size: 512, d_model: 64, encoder_layers: 2, decoder_layers: 2,
    encoder_attention_heads: 4, decoder_attention_heads: 4, encoder_ffn_dim: 96, decoder_ffn_dim: 96,
    num_mel_bins: 20, max_source_positions: 16, max_target_positions: 32,
  }, // prettier-ignore
};
