/** Takes the text of a cluster and gives that of one with faster links between hosts. */

import { loadCluster } from '../../../cost/hardware/cluster.ts';

/** The text of a cluster whose links between hosts carry `factor` times as much. */
export function clusterWith(text: string, factor: number): string {
  const bytesPerSecond = loadCluster(text).inter.bytesPerSecond * factor;
  if (!text.trim().startsWith('{')) return JSON.stringify({ base: text.trim(), inter: { bytesPerSecond } });
  const json = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const inter = typeof json.inter === 'object' && json.inter !== null ? json.inter : {};
  return JSON.stringify({ ...json, inter: { ...inter, bytesPerSecond } });
}
