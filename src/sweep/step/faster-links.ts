/** Takes the text of a cluster and gives that of one with faster links, or other memory. */

import { loadCluster } from '../../cost/hardware/load-cluster.ts';

/** The text of a cluster whose devices have so many bytes. */
export function clusterWithMemory(text: string, memoryBytes: number): string {
  return JSON.stringify(
    text.trim().startsWith('{')
      ? { ...(JSON.parse(text) as object), memoryBytes }
      : { base: text.trim(), memoryBytes },
  );
}

/** The text of a cluster whose links between hosts carry `factor` times as much. */
export function clusterWith(text: string, factor: number): string {
  const { inter: links, levels } = loadCluster(text);
  const bytesPerSecond = links.bytesPerSecond * factor;
  if (!text.trim().startsWith('{'))
    return JSON.stringify({ base: text.trim(), inter: { bytesPerSecond } });
  const json = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const inter = typeof json.inter === 'object' && json.inter !== null ? json.inter : {};
  const faster = levels?.map((level) => ({
    ...level,
    bytesPerSecond: level.bytesPerSecond * factor,
  }));
  const changed = { ...json, inter: { ...inter, bytesPerSecond } };
  if (faster === undefined) return JSON.stringify(changed);
  // Levels inside a host stay as they are stated.
  const stated = Array.isArray(json.levels)
    ? (json.levels as readonly { readonly scaleUp?: unknown }[])
    : [];
  return JSON.stringify({
    ...changed,
    levels: [...stated.filter((level) => level.scaleUp === true), ...faster],
  });
}
