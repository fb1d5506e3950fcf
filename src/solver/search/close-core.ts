/**
 * Ends a node: exact elimination of the network that fixing and presolve leave, where that is
 * narrow enough. It tells whether nothing below the cutoff is left unknown; the best choice is
 * proposed, and the steps that prove it are logged.
 */
import { paretoEliminate } from '../eliminate/pareto.ts';
import type { Network } from '../network/network.ts';
import { STEP } from '../network/proof-log.ts';
import { ELIMINATION, PARETO } from './limits.ts';
import type { Workspace } from './workspace.ts';

interface CoreLimits {
  /** Largest cost above the constant of the network that may still matter. */
  readonly slack: number;
  readonly workLeft: number;
  /** Roots may take more work than branches. */
  readonly isRoot: boolean;
  readonly stopped: () => boolean;
}

export function closeCore(
  net: Network,
  { eliminator, meter }: Pick<Workspace, 'eliminator' | 'meter'>,
  { slack, workLeft, isRoot, stopped: stop }: CoreLimits,
  propose: (net: Network, at: Int32Array) => void,
): boolean {
  if (net.rows.length > 0) {
    const share = isRoot ? 1 : PARETO.branchShare;
    const work = Math.min(PARETO.work * share, workLeft);
    const result = paretoEliminate(net, { labels: PARETO.labels, work, slack, stop });
    meter.spend({ labels: result.work });
    if (result.status === 'found') propose(net, result.at);
    if (result.status !== 'too-large') net.log.push(STEP.pareto);
    return result.status !== 'too-large';
  }
  const core = net.clone();
  const status = eliminator.run(core, {
    ...(isRoot ? ELIMINATION.core : ELIMINATION.branch),
    slack,
    stop,
  });
  if (status === 'done') propose(core, new Int32Array(core.count));
  if (status === 'done' || status === 'infeasible') net.log.absorb(core.log);
  return status === 'done' || status === 'infeasible';
}
