/**
 * Loads the `Cluster` of a node design by its name, or of the JSON text of a user's file. A text
 * that does not fit is refused.
 */

import * as z from 'zod';

import { checkKinds } from '../../arguments.ts';
import { didYouMean, ShardwrightError, suggestion, valueText } from '../../errors.ts';
import { shown } from '../../mesh/placements/scan.ts';
import { product } from '../../product.ts';
import { parseJson } from '../../text/json.ts';
import { placeAt } from '../../text/place.ts';
import { bytesText } from '../../units.ts';
import { calibrated } from './calibrate.ts';
import {
  type Cluster,
  HEADROOM,
  HEADROOM_ASSUMED,
  headroomOf,
  type LinkLevel,
  type NetworkLevel,
} from './cluster.ts';
import { clusterOfNode } from './cluster-of-node.ts';
import {
  clusterFileSchema,
  derivedFileSchema,
  INTER_EFFICIENCY,
  INTRA_EFFICIENCY,
  withoutScaleUp,
} from './cluster-schema.ts';
import type { NodeFacts } from './facts.ts';
import { type Hardware, hardware } from './hardware.ts';

const FORM =
  'give every field, or {"base": "dgx-h100", ...} with the fields that differ; units are ' +
  'seconds, bytes, and bytes or FLOPs a second';

/** Names that `loadCluster` knows, sorted. */
export function clusterNames(): string[] {
  return hardware()
    .nodes.map((n) => n.id)
    .sort();
}

/**
 * The cluster of a node design (`dgx-h100`), or of a JSON text: all fields of `clusterFileSchema`,
 * or `base` with the name of a node design and the fields that differ.
 *
 * or the name of an accelerator (`h100`), whose usual node design is taken and named in the
 * assumptions.
 *
 * @throws E_CLUSTER for an unknown name (with the nearest ones) or a file that does not fit
 */
export function loadCluster(nameOrJson: string): Cluster {
  checkKinds('loadCluster', { nameOrJson: [nameOrJson, 'string'] });
  const text = nameOrJson.trim();
  if (text.startsWith('{')) return clusterFromJson(nameOrJson);
  const facts = hardware();
  const node = facts.nodes.find((n) => n.id === text.toLowerCase());
  if (node !== undefined) return clusterOfNode(node, facts);
  const slice = sliceOfPod(text, facts);
  if (slice !== undefined) return slice;
  const usual = nodeOfAccelerator(text, facts);
  if (usual !== undefined) {
    const cluster = clusterOfNode(usual, facts);
    const taken = `'${text}' is taken as ${usual.id}, a host of ${usual.accelerator}`;
    return { ...cluster, assumptions: [...cluster.assumptions, taken] };
  }
  if (facts.accelerators.some((a) => a.id === text.toLowerCase()))
    throw new ShardwrightError(
      'E_CLUSTER',
      `no node design is known for the accelerator '${text}'`,
      {
        hint: 'pass a JSON file with its links (`shardwright hardware show dgx-h100` prints one).',
      },
    );
  const names = [...clusterNames(), ...everydayNames(facts)];
  const known = didYouMean(text, names).length > 0 ? names : clusterNames();
  throw new ShardwrightError('E_CLUSTER', `unknown cluster '${shown(text)}'`, {
    hint: `${suggestion(text, known, 'clusters').replace(/([^?])$/, '$1.')} Or give a JSON file.`,
  });
}

/** Designs of clouds: an accelerator is taken in the host of its vendor, if there is one. */
const CLOUD = /^(?:aws|azure|gcp)-/;

/** `trillium`, `ironwood`: a second name of an accelerator. */
const NICKNAME = /^[a-z]{4,}$/;

/**
 * The usual node design of an accelerator by its everyday name, in any case of letters: `h100`,
 * `A100-40GB`, `MI300X`, `v5e`, `RTX 4090`, `4090`.
 */
function nodeOfAccelerator(text: string, { nodes }: Hardware): NodeFacts | undefined {
  const [model, ...more] = text
    .toLowerCase()
    .replace(/^(?:nvidia|amd|google|intel|aws)[- ]/, '')
    .replace(/^tpu[- ](?=v)/, '')
    .replace(/^(?:geforce[- ])?(?:rtx[- ]?)?(?=[3-6]0\d0\b)/, 'rtx')
    .replace(/^rtx[- ]?(?=a\d)/, '')
    .split(/[- ]/);
  const found = nodes.filter(({ accelerator }) => {
    const words = accelerator
      .toLowerCase()
      .replace(/^tpu-(?=v)/, '')
      .split('-');
    const [own, ...others] = words;
    const isNamed = own === model || (NICKNAME.test(model) && words.at(-1) === model);
    return isNamed && more.every((word) => others.some((other) => other.startsWith(word)));
  });
  return found.find(({ id }) => !CLOUD.test(id)) ?? found[0];
}

/** `tpu-v5e-16`, `v5litepod-16`, `v5p-2x2x4`. */
const SLICE = /^(?:tpu[- ])?(v\d+(?:litepod|[a-z])?)[- ](\d+)((?:x\d+)*)$/;
/** Versions whose slices are named by TensorCores, of which a chip has two. */
const CORES = /^v(?:2|3|4|5p)$/;

/**
 * A slice of a TPU pod by the name that Google Cloud gives it: its version with a number of chips
 * or cores, or with the sides of its torus (cloud.google.com/tpu/docs/system-architecture-tpu-vm).
 * Slices reach each other over the network of the data center, as hosts do.
 *
 * @throws E_CLUSTER for more chips than a pod has
 */
function sliceOfPod(text: string, facts: Hardware): Cluster | undefined {
  const named = SLICE.exec(text.toLowerCase());
  if (named === null) return undefined;
  const version = named[1] === 'v5litepod' ? 'v5e' : named[1];
  const pod = nodeOfAccelerator(version, facts);
  if (pod === undefined) return undefined;
  const sides = `${named[2]}${named[3]}`.split('x').map(Number);
  const units = product(sides);
  const chips = named[3] === '' && CORES.test(version) ? units / 2 : units;
  if (!Number.isInteger(chips) || chips < 1 || chips > pod.accelerators)
    throw new ShardwrightError('E_CLUSTER', `'${text}' is not a slice of ${pod.id}`, {
      hint:
        `a slice has 1 to ${pod.accelerators} chips` +
        `${CORES.test(version) ? ', each with two of the cores that its name counts' : ''}.`,
    });
  const cluster = clusterOfNode({ ...pod, accelerators: chips }, facts);
  const taken = `'${text}' is a slice of ${chips} chips of ${pod.id}`;
  return { ...cluster, assumptions: [...cluster.assumptions, taken] };
}

/** The accelerators of node designs as people call them: `h100`, `mi300x`, `v5e`. */
export function acceleratorNames(): string[] {
  return everydayNames(hardware());
}

function everydayNames({ nodes }: Hardware): string[] {
  const names = nodes.map(({ accelerator }) =>
    accelerator
      .toLowerCase()
      .replace(/^tpu-(?=v)/, '')
      .replace(/-.*/, ''),
  );
  return [...new Set(names)];
}

/** The cluster of the JSON text of a file. @throws E_CLUSTER, with the place, for another text */
export function clusterFromJson(text: string): Cluster {
  const json = withoutScaleUp(parseJson(text, {}, { what: 'the cluster file', code: 'E_CLUSTER' }));
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new ShardwrightError(
      'E_CLUSTER',
      `the cluster file does not fit: expected an object, found ${valueText(json)}`,
      { ...placeAt(text, text.search(/\S/)), hint: FORM },
    );
  const cluster = withMemory('base' in json ? derivedCluster(json) : wholeCluster(json));
  // What was measured wins over what was published or stated.
  return cluster.calibration === undefined ? cluster : calibrated(cluster, cluster.calibration);
}

/** The cluster of a file that names a node design and the fields that differ. */
function derivedCluster(given: Record<string, unknown>): Cluster {
  const file = check(derivedFileSchema, given);
  const base = loadCluster(file.base);
  // Defaults of the schema must not cover what the base says: only fields of the text count.
  const own = Object.fromEntries(
    Object.entries(file).filter(([key]) => key in given && key !== 'base'),
  );
  const keys = Object.keys(own).sort();
  const reserved =
    file.memoryBytes !== undefined && file.reservedBytes === undefined
      ? { reservedBytes: headroomOf(file.memoryBytes) }
      : {};
  return {
    ...base,
    id: `${base.id}*`,
    ...reserved,
    ...own,
    intra: { ...base.intra, ...picked(given, 'intra', file.intra) },
    inter: { ...base.inter, ...picked(given, 'inter', file.inter) },
    ...(file.levels === undefined ? {} : { levels: networkLevels(file.levels) }),
    ...(file.operation === undefined
      ? {}
      : { operation: { ...base.operation, ...file.operation } }),
    sources: {
      ...base.sources,
      ...Object.fromEntries(keys.map((k) => [k, "user's file"])),
      ...file.sources,
    },
    assumptions: [...base.assumptions, `fields changed by the user's file: ${keys.join(', ')}`],
  };
}

/** The cluster of a file that states all fields. */
function wholeCluster(json: unknown): Cluster {
  const whole = check(clusterFileSchema, json);
  const {
    matmulCurves,
    attentionShares,
    collectiveTable,
    calibration,
    torus,
    powerShare,
    devicesPerTray,
    usedPerHost,
    levels,
    operation,
    intra,
    inter,
    ...file
  } = whole;
  return {
    ...file,
    intra: { ...intra, efficiency: intra.efficiency ?? INTRA_EFFICIENCY },
    inter: { ...inter, efficiency: inter.efficiency ?? INTER_EFFICIENCY },
    ...(devicesPerTray !== undefined && { devicesPerTray }),
    ...(usedPerHost !== undefined && { usedPerHost }),
    ...(levels !== undefined && { levels: networkLevels(levels) }),
    ...(operation !== undefined && { operation }),
    ...(matmulCurves !== undefined && { matmulCurves }),
    ...(attentionShares !== undefined && { attentionShares }),
    ...(collectiveTable !== undefined && { collectiveTable }),
    ...(calibration !== undefined && { calibration }),
    ...(torus !== undefined && { torus }),
    ...(powerShare !== undefined && { powerShare }),
    name: file.name ?? file.id,
    reservedBytes: file.reservedBytes ?? headroomOf(file.memoryBytes),
    // A record that says what it assumes is whole, as we print it: its sources are its own.
    sources:
      file.assumptions === undefined
        ? { '*': "user's file", ...file.sources }
        : (file.sources ?? {}),
    assumptions: assumptionsOf(whole),
  };
}

type ClusterFile = z.infer<typeof clusterFileSchema>;

function assumptionsOf({
  assumptions: stated = [],
  reservedBytes,
  intra,
  inter,
  levels = [],
}: ClusterFile): string[] {
  const assumptions = [...stated];
  if (reservedBytes === undefined) assumptions.push(HEADROOM_ASSUMED);
  for (const [what, links, share] of [
    ['inside a host', [intra], INTRA_EFFICIENCY],
    ['between hosts', [inter, ...levels], INTER_EFFICIENCY],
  ] as const)
    if (links.some((link) => link.efficiency === undefined))
      assumptions.push(
        `the file states no efficiency of a link ${what}: ${(share * 100).toFixed(1)} % of ` +
          'its rate is taken',
      );
  return assumptions;
}

function networkLevels(
  levels: readonly (Omit<NetworkLevel, 'efficiency'> & {
    readonly efficiency?: number | undefined;
  })[],
): NetworkLevel[] {
  return levels.map((level) => ({ ...level, efficiency: level.efficiency ?? INTER_EFFICIENCY }));
}

/** Refuses a cluster whose units do not hold whole ones of the level below. */
function nested(cluster: Cluster): Cluster {
  const { devicesPerHost, devicesPerTray = 1, usedPerHost, levels = [] } = cluster;
  const units: readonly (readonly [string, number, number])[] = [
    ['devicesPerTray', devicesPerHost, devicesPerTray],
    ...levels.map(
      ({ name, devices }, k) =>
        [`levels: ${name}`, devices, levels[k - 1]?.devices ?? devicesPerHost] as const,
    ),
  ];
  const torn = units.find(([, outer, inner]) => outer % inner !== 0);
  const hint = 'levels go from the smallest to the largest, each of whole units of the one before.';
  if (torn !== undefined)
    throw new ShardwrightError(
      'E_CLUSTER',
      `the cluster file does not fit: ${torn[0]}: ${torn[1]} devices are not whole units of ` +
        `${torn[2]}`,
      { path: torn[0], hint },
    );
  if (usedPerHost !== undefined && usedPerHost > devicesPerHost)
    throw new ShardwrightError(
      'E_CLUSTER',
      `the cluster file does not fit: usedPerHost is ${usedPerHost}, and a host has ` +
        `${devicesPerHost} devices`,
      { path: 'usedPerHost', hint: `give 1 to ${devicesPerHost}.` },
    );
  return cluster;
}

/** Refuses a cluster whose devices have nothing left for a plan. */
function withMemory(cluster: Cluster): Cluster {
  nested(cluster);
  const { memoryBytes, reservedBytes } = cluster;
  if (reservedBytes < memoryBytes) return cluster;
  throw new ShardwrightError(
    'E_CLUSTER',
    `the cluster file does not fit: ${bytesText(reservedBytes)} of a device are reserved and ` +
      `its memory is ${bytesText(memoryBytes)}`,
    {
      path: 'reservedBytes',
      hint:
        `give reservedBytes below memoryBytes (default: ${100 * HEADROOM} % of it), both in ` +
        'bytes.',
    },
  );
}

function picked(
  given: Record<string, unknown>,
  key: string,
  link: object | undefined,
): Partial<LinkLevel> {
  const raw = given[key];
  if (link === undefined || typeof raw !== 'object' || raw === null) return {};
  return Object.fromEntries(Object.entries(link).filter(([field]) => field in raw));
}

function check<T>(schema: z.ZodType<T>, json: unknown): T {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  throw new ShardwrightError(
    'E_CLUSTER',
    `the cluster file does not fit: ${z.prettifyError(parsed.error)}`,
    { hint: FORM },
  );
}
