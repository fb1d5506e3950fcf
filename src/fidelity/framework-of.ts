/**
 * Finds the trainer of a measured run that does not name it, by its layout and its software: the
 * words that each trainer's documentation has for its settings.
 */
import type { FrameworkName } from '../trainers/trainers.ts';

/** Facts of a row that tell its trainer. */
interface FrameworkFacts {
  readonly zero: string;
  readonly extras: string;
  readonly recompute: string;
  readonly dtype: string;
  readonly accelerator: string;
}

/**
 * The trainer of a row that does not name it, by its layout and its software; PyTorch's FSDP2 as
 * TorchTitan runs it else.
 */
export function frameworkOf({
  zero,
  extras,
  recompute,
  dtype,
  accelerator,
}: FrameworkFacts): FrameworkName {
  if (/Megatron-DeepSpeed/i.test(extras) || /fp32 grad accumulation/.test(dtype))
    return 'megatron-deepspeed';
  if (/DeepSpeed/i.test(extras)) return 'deepspeed';
  if (/TPU/.test(accelerator)) return 'maxtext';
  if (/DeepEP|\bTE\b/.test(extras) && /FSDP2/.test(zero)) return 'nemo-automodel';
  if (/FULL_SHARD|SHARD_GRAD_OP/.test(zero) || /mixed_precision=/.test(extras))
    return 'llm-foundry';
  if (/no reshard/.test(zero)) return 'llama3-herd';
  if (/distributed optimizer|Megatron-FSDP/i.test(zero))
    return /per recipe/.test(recompute) ? 'megatron-bridge' : 'megatron-core';
  if (/overlap-grad-reduce|tp-comm-overlap/.test(extras)) return 'megatron-core';
  if (/^[01]( |$)/.test(zero)) return /^(A100|V100)/.test(accelerator) ? 'megatron-lm' : 'nanotron';
  return 'torchtitan';
}
