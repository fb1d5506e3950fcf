/** Prices a given plan again on faster and slower links. */

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { RedistributionCharges } from '../../../cost/redistribution/charges.ts';
import { Redistributor } from '../../../cost/redistribution/redistribute.ts';
import { recost } from '../../../plan/choice/recost.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { pricesOf } from '../../../plan/prepare/prices.ts';
import type { Plan } from '../../../plan/record/types.ts';

/** The same plan on links of another speed. */
export interface Sensitivity {
  readonly what: string;
  /** Seconds of the plan as it is, under the new prices. */
  readonly seconds: number;
  readonly deltaSeconds: number;
  /** The best plan there, where it was solved for (`--what-if`). */
  readonly bestSeconds: number | null;
}

interface LinkChange {
  readonly what: string;
  readonly level: 'intra' | 'inter';
  readonly factor: number;
}

const CHANGES: readonly LinkChange[] = [
  { what: 'links between hosts twice as fast', level: 'inter', factor: 2 },
  { what: 'links between hosts half as fast', level: 'inter', factor: 0.5 },
  { what: 'links inside a host twice as fast', level: 'intra', factor: 2 },
  { what: 'links inside a host half as fast', level: 'intra', factor: 0.5 },
];

/** Changes of links that some collective of the mesh runs on. */
export function linkChanges(plan: Plan): LinkChange[] {
  const crosses = plan.mesh.some((d) => d.hosts > 1);
  const inside = plan.mesh.some((d) => d.size > d.hosts);
  const { torus, collectiveTable } = loadCluster(plan.request.cluster);
  // Measured times are of the links as they are: what they would be on others is not known.
  if (collectiveTable !== undefined) return [];
  return CHANGES.filter(({ level }) =>
    level === 'inter' ? crosses : inside && torus === undefined,
  );
}

/**
 * The cluster of a request with other links, as text: the name of a design or a file is kept as the
 * base.
 */
export function withLinks(cluster: string, { level, factor }: LinkChange): string {
  const { bytesPerSecond } = loadCluster(cluster)[level];
  const text = cluster.trim();
  const file = (text.startsWith('{') ? JSON.parse(text) : { base: text }) as Record<
    string,
    unknown
  >;
  const links = typeof file[level] === 'object' ? file[level] : {};
  return JSON.stringify({
    ...file,
    [level]: { ...links, bytesPerSecond: bytesPerSecond * factor },
  });
}

/** Prices the plan again on faster and slower links; nothing is solved. */
export function sensitivityOf(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  plan: Plan,
): Sensitivity[] {
  const { space } = model;
  return linkChanges(plan).map((change) => {
    const cluster = loadCluster(withLinks(request.cluster, change));
    const collectives = pricesOf(request, cluster, space.mesh);
    const charges = new RedistributionCharges(new Redistributor(space, collectives));
    const seconds = recost(plan, { ...model, cluster, collectives, charges });
    return {
      what: change.what,
      seconds,
      deltaSeconds: seconds - plan.proof.recheckedSeconds,
      bestSeconds: null,
    };
  });
}
