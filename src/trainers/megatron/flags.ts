/**
 * The arguments of Megatron-LM by kind: priced ones whose values need another reading, those that
 * state the model, and those that change neither the time nor the memory of a step. Source: the
 * groups of `megatron/training/arguments.py` of megatron-core 0.16. An argument that is neither
 * priced nor in one of these tables is listed as not counted.
 */

import type { ModelFact } from '../layout/layout-draft.ts';

const words = (text: string): string[] => text.split(/\s+/);

/** Priced arguments that take no value. */
export const SWITCHES: ReadonlySet<string> = new Set(
  words(
    'sequence_parallel use_distributed_optimizer use_torch_fsdp2 use_megatron_fsdp ' +
      'use_custom_fsdp recompute_activations checkpoint_activations ' +
      'overlap_moe_expert_parallel_comm bf16 fp16 tp_comm_overlap ' +
      'account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split ' +
      'cpu_offloading optimizer_cpu_offload fine_grained_activation_offloading ' +
      'accumulate_allreduce_grads_in_fp32 grad_reduce_in_bf16 moe_shared_expert_overlap ' +
      'use_tp_pp_dp_mapping use_checkpoint_args use_mp_args_from_checkpoint_args',
  ),
);

/** Priced arguments that take several values. */
export const LISTS: ReadonlySet<string> = new Set(
  words('recompute_modules cp_comm_type rampup_batch_size'),
);

/** Arguments that state a size of the model. */
export const FACTS: Readonly<Record<string, ModelFact>> = {
  num_layers: 'layers',
  hidden_size: 'width',
  ffn_hidden_size: 'hidden',
  num_attention_heads: 'heads',
  num_query_groups: 'keyHeads',
  kv_channels: 'headWidth',
  vocab_size: 'vocabulary',
  num_experts: 'experts',
  num_moe_experts: 'experts',
  moe_router_topk: 'active',
  moe_ffn_hidden_size: 'expertHidden',
};

/** Arguments that state the form of the model: its config has it. */
const FORM: ReadonlySet<string> = new Set(
  words(
    'position_embedding_type rotary_base rotary_percent rotary_interleaved ' +
      'rotary_scaling_factor use_rotary_position_embeddings use_rope_scaling ' +
      'rope_scaling_factor rope_factor mscale mscale_all_dim ' +
      'rotary_seq_len_interpolation_factor no_position_embedding normalization ' +
      'norm_epsilon apply_layernorm_1p swiglu squared_relu openai_gelu quick_geglu ' +
      'glu_linear_offset activation_func_clamp_value disable_bias_linear add_qkv_bias ' +
      'add_bias_linear untie_embeddings_and_output_weights qk_layernorm ' +
      'group_query_attention max_position_embeddings multi_latent_attention q_lora_rank ' +
      'kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim window_size ' +
      'window_attn_skip_freq softmax_type moe_layer_freq ' +
      'moe_shared_expert_intermediate_size moe_router_pre_softmax ' +
      'moe_router_score_function moe_router_enable_expert_bias ' +
      'moe_router_topk_scaling_factor moe_router_num_groups moe_router_group_topk ' +
      'moe_router_dtype moe_router_load_balancing_type ' +
      'apply_residual_connection_post_layernorm apply_query_key_layer_scaling ' +
      'attention_softmax_in_fp32 encoder_num_layers decoder_num_layers ' +
      'encoder_seq_length decoder_seq_length model_name spec is_hybrid_model ' +
      'hybrid_override_pattern',
  ),
);

/** Arguments on the data, the optimizer's rates, checkpoints, logs and the start of the run. */
const NOTHING: ReadonlySet<string> = new Set(
  words(
    // Training length, evaluation and validation.
    'train_iters train_samples train_tokens eval_iters eval_interval full_validation ' +
      'skip_train iterations_to_skip result_rejected_tracker_filename exit_interval ' +
      'exit_duration_in_mins exit_signal_handler exit_on_missing_checkpoint ' +
      'dataloader_type start_weight_decay ' +
      // Learning rate and regularization.
      'lr min_lr lr_decay_style lr_wsd_decay_style lr_decay_iters lr_decay_samples ' +
      'lr_decay_tokens lr_wsd_decay_iters lr_wsd_decay_samples lr_warmup_fraction ' +
      'lr_warmup_iters lr_warmup_samples lr_warmup_tokens lr_warmup_init decoupled_lr ' +
      'decoupled_min_lr warmup override_opt_param_scheduler ' +
      'use_checkpoint_opt_param_scheduler override_lr_scheduler weight_decay ' +
      'end_weight_decay weight_decay_incr_style adam_beta1 adam_beta2 adam_eps ' +
      'sgd_momentum clip_grad initial_loss_scale min_loss_scale loss_scale ' +
      'loss_scale_window hysteresis check_for_nan_in_loss_and_grad ' +
      'no_check_for_nan_in_loss_and_grad check_for_spiky_loss check_for_large_grads ' +
      'calculate_per_token_loss moe_aux_loss_coeff moe_z_loss_coeff ' +
      'moe_router_bias_update_rate mtp_loss_scaling_factor ' +
      // Data and tokens.
      'data_path train_data_path valid_data_path test_data_path data_args_path ' +
      'per_split_data_args_path data_cache_path mock_data split vocab_file merge_file ' +
      'vocab_extra_ids tokenizer_type tokenizer_model tokenizer_hf_no_use_fast ' +
      'tokenizer_metadata tiktoken_pattern tiktoken_num_special_tokens ' +
      'tiktoken_special_tokens data_impl mmap_warmup no_mmap_bin_files num_workers ' +
      'num_dataset_builder_threads reset_position_ids reset_attention_mask ' +
      'eod_mask_loss no_create_attention_mask_in_dataloader ' +
      'create_attention_mask_in_dataloader s3_cache_path object_storage_cache_path ' +
      'trust_remote_code mask_prob short_seq_prob ' +
      // Checkpoints.
      'save save_interval save_retain_interval load load_iteration no_save_optim ' +
      'no_save_rng no_load_optim no_load_rng finetune pretrained_checkpoint ckpt_step ' +
      'ckpt_format ckpt_convert_format ckpt_convert_save ckpt_fully_parallel_save ' +
      'no_ckpt_fully_parallel_save ckpt_fully_parallel_load ' +
      'ckpt_assume_constant_structure auto_detect_ckpt_format use_dist_ckpt ' +
      'dist_ckpt_format dist_ckpt_strictness async_save ' +
      'use_persistent_ckpt_worker non_persistent_save_interval non_persistent_ckpt_type ' +
      'no_use_tokenizer_model_from_checkpoint_args ' +
      'use_tokenizer_model_from_checkpoint_args verify_integrity replication ' +
      'replication_factor ' +
      // Logs and profiles.
      'log_interval log_throughput log_params_norm log_num_zeros_in_grad log_progress ' +
      'log_energy log_timers_to_tensorboard log_batch_size_to_tensorboard ' +
      'log_memory_to_tensorboard log_validation_ppl_to_tensorboard ' +
      'log_learning_rate_to_tensorboard no_log_learning_rate_to_tensorboard ' +
      'log_loss_scale_to_tensorboard no_log_loss_scale_to_tensorboard ' +
      'log_world_size_to_tensorboard log_straggler log_max_attention_logit ' +
      'logging_level log_level timing_log_level timing_log_option tensorboard_dir ' +
      'tensorboard_log_interval tensorboard_queue_size wandb_project wandb_entity ' +
      'wandb_exp_name wandb_save_dir one_logger_project one_logger_run_name ' +
      'app_tag_run_name enable_one_logger no_one_logger profile profile_step_start ' +
      'profile_step_end profile_ranks use_pytorch_profiler record_memory_history ' +
      'memory_snapshot_path barrier_with_L1_time no_barrier_with_level_1_timing ' +
      // Start of the run, seeds and names of implementations that are the same program.
      'seed data_parallel_random_init init_method_std init_method_xavier_uniform ' +
      'embedding_init_method_std perform_initialization no_initialization ' +
      'use_cpu_initialization init_model_with_meta_device distributed_backend ' +
      'distributed_timeout_minutes distributed_timeout_seconds_after_init local_rank ' +
      'lazy_mpu_init nccl_communicator_config_path ' +
      'use_mcore_models use_legacy_models enable_experimental adlr_autoresume ' +
      'adlr_autoresume_interval inprocess_restart te_rng_tracker ' +
      'moe_router_force_load_balancing rerun_mode error_injection_rate ' +
      'error_injection_type ' +
      // The launcher's own, where no program name parts them.
      'nproc_per_node nnodes node_rank master_addr master_port rdzv_id ' +
      'rdzv_backend rdzv_endpoint rdzv_conf max_restarts standalone log_dir tee ' +
      'redirects',
  ),
);

/** Tells what an argument without a price is. */
export function flagKind(key: string): 'nothing' | 'form' | 'other' {
  return NOTHING.has(key) ? 'nothing' : FORM.has(key) ? 'form' : 'other';
}
