/** What is run on real PyTorch: models, meshes and recipes beside the optimum. */
import type { PlanRequest } from '../../src/index.ts';

export interface RunningCase {
  readonly model: string;
  readonly mesh: string;
  readonly known: readonly string[];
  readonly request?: Partial<PlanRequest>;
}

const FSDP = ['FSDP (dp)', 'FSDP (dp) + Megatron (tp)'];
const SEQUENCE = ['data parallel (dp) + context parallel (tp)', 'FSDP (dp+tp) + Ulysses (tp)'];

export const RUNNING: readonly RunningCase[] = [
  { model: 'mlp', mesh: 'dp=2', known: ['FSDP (dp)'] },
  { model: 'mlp', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'mlp', mesh: 'dp=2,tp=4', known: FSDP },
  { model: 'mlp', mesh: 'pod=2,dp=2,tp=2', known: ['FSDP (pod+dp) + Megatron (tp)'] },
  { model: 'uneven', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'dropout', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'llama', mesh: 'dp=2', known: ['FSDP (dp)'] },
  { model: 'llama', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'llama', mesh: 'dp=2,tp=4', known: FSDP },
  { model: 'llama-sdpa', mesh: 'dp=2,tp=2', known: [...FSDP, ...SEQUENCE] },
  { model: 'llama-sdpa', mesh: 'dp=2,tp=4', known: SEQUENCE },
  { model: 'llama-sdpa', mesh: 'pod=2,dp=2,tp=2', known: ['FSDP (pod+dp) + Megatron (tp)'] },
  { model: 'llama-tied', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'llama-sdpa', mesh: 'dp=2,tp=2', known: [], request: { checkpoint: 'full' } },
  { model: 'gpt2', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'bert', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'vit', mesh: 'dp=2,tp=2', known: FSDP },
  { model: 'resnet', mesh: 'dp=2,tp=2', known: ['FSDP (dp)'] },
];

/** Name of a plan with what was asked beside the mesh. */
export function caseName(name: string, { request }: RunningCase): string {
  return request === undefined ? name : `${name} ${JSON.stringify(request)}`;
}
