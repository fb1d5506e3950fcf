/**
 * Reads the lines that NCCL and RCCL print under `NCCL_DEBUG=INFO`: devices of a host, its network
 * cards and the network that is used; under `NCCL_DEBUG_SUBSYS=GRAPH` also the rates of the cards.
 * Source: `src/init.cc`, `src/transport/net_ib.cc` and `src/graph/topo.cc` of NVIDIA/nccl 2.5 to
 * 2.27.
 */

const LINE = /(?:^|[\s:>])([^\s:>]+):\d+:\d+ \[(\d+)\] [NR]CCL (?:INFO|WARN) (.*)$/;
/** `NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.5<0>`. */
const CARDS = /^NET\/IB : Using ((?:\[\d+\]\S+ ?)+)/;
/** `+ NET[25.0] - NET/0 (0/0/25.000000)`: the last figure is GB/s. */
const CARD = /\bNET\[[\d.]+\] - NET\/(\S+) \((?:[^()\s]*\/)?(\d+(?:\.\d+)?)\)/;
const DEVICE = /\[[\d.]+\] - GPU\/(\S+) \(/;

/** The host and its network in a log of NCCL. */
interface NcclLog {
  /** Devices of a host that took part; undefined where the log does not say. */
  readonly devices: number | undefined;
  /** Network cards of a host. */
  readonly cards: number | undefined;
  /** The least rate of these cards, one way. */
  readonly bytesPerSecond: number | undefined;
  /** The network as NCCL names it: `IB`, `IBext`, `Socket`, `AWS Libfabric`. */
  readonly network: string | undefined;
  readonly version: string | undefined;
}

/** Tells whether a text has such lines. */
export function isNcclLog(text: string): boolean {
  return text.split('\n').some((line) => LINE.test(line));
}

/** Reads the lines of all ranks together; where hosts differ, the least counts. */
export function readNcclLog(text: string): NcclLog {
  const hosts = new Map<string, Host>();
  let ranks: number | undefined;
  let local: number | undefined;
  let network: string | undefined;
  for (const line of text.split(/\r?\n/)) {
    const [, name, device, said = ''] = LINE.exec(line) ?? [];
    if (name === undefined) continue;
    const host = hosts.get(name) ?? newHost();
    hosts.set(name, host);
    host.seen.add(device);
    readTopology(said, host);
    const cards = CARDS.exec(said)?.[1].trim().split(/\s+/).length;
    if (cards !== undefined) host.named = Math.max(host.named, cards);
    network ??= /^Using network (.+?)\s*$/.exec(said)?.[1];
    ranks = larger(ranks, /\bn[rR]anks (\d+)/.exec(said)?.[1]);
    local = larger(local, /\blocalRanks (\d+)/.exec(said)?.[1]);
  }
  const all = [...hosts.values()];
  const seen = all.reduce((sum, host) => sum + host.seen.size, 0);
  const whole = seen === ranks ? least(all.map((host) => host.seen.size)) : undefined;
  return {
    devices: local ?? least(all.map((host) => host.devices.size)) ?? whole,
    cards: least(all.map((host) => host.cards.size)) ?? least(all.map((host) => host.named)),
    bytesPerSecond: least(all.flatMap((host) => [...host.cards.values()])),
    network,
    version: /\b[NR]CCL version (\d[\w.+-]*)/.exec(text)?.[1],
  };
}

interface Host {
  /** Devices whose processes have printed something. */
  readonly seen: Set<string>;
  /** Devices and cards of the topology, the cards with their bytes a second. */
  readonly devices: Set<string>;
  readonly cards: Map<string, number>;
  /** Cards in the list of those that are used. */
  named: number;
}

const newHost = (): Host => ({ seen: new Set(), devices: new Set(), cards: new Map(), named: 0 });

/** Every process of a host prints the same topology. */
function readTopology(said: string, host: Host): void {
  const [, card, rate] = CARD.exec(said) ?? [];
  if (card !== undefined && Number(rate) > 0) host.cards.set(card, Number(rate) * 1e9);
  const gpu = DEVICE.exec(said)?.[1];
  if (gpu !== undefined) host.devices.add(gpu);
}

/** The least of the figures above zero; undefined without one. */
function least(figures: readonly number[]): number | undefined {
  const some = figures.filter((figure) => figure > 0);
  return some.length === 0 ? undefined : Math.min(...some);
}

function larger(known: number | undefined, text: string | undefined): number | undefined {
  return text === undefined ? known : Math.max(known ?? 0, Number(text));
}
