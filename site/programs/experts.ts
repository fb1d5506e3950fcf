/** A mixture of experts with dense dispatch. */
import { spec, type Tensor } from 'shardwright';
import { MixtureOfExperts, RMSNorm } from 'shardwright/trace';

const norm = new RMSNorm('norm', 1024);
const moe = new MixtureOfExperts('moe', 1024, 4096, 8, { active: 2, capacityFactor: 1.25 });

export const inputs = { x: spec([8, 512, 1024]) };

export function model({ x }: { x: Tensor }): Tensor {
  return x.add(moe.forward(norm.forward(x)));
}
