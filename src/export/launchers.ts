/**
 * Writes the file that starts the ranks of a plan: a batch script of Slurm, a JobSet of Kubernetes,
 * or a task of SkyPilot. In it every host starts its ranks by `torchrun`, so that ranks of one host
 * follow each other as the mesh counts them.
 *
 * Sources: sbatch(1) and srun(1) of Slurm; the API `jobset.x-k8s.io/v1alpha2` and its example of
 * PyTorch; "Distributed Multi-Node Jobs" of SkyPilot, for the variables of a node.
 */
import { pyComment } from '../backend/python-text.ts';
import type { ExportFile } from '../backend/target.ts';
import type { Cluster } from '../cost/hardware/cluster.ts';
import { ShardwrightError } from '../errors.ts';

export const LAUNCHERS = ['slurm', 'kubernetes', 'skypilot'] as const;
type Launcher = (typeof LAUNCHERS)[number];

/** The job: how many hosts, and what each rank runs. */
interface Job {
  readonly name: string;
  readonly hosts: number;
  readonly devicesPerHost: number;
  readonly accelerator: string;
  /** The program and its arguments, as `torchrun` takes them. */
  readonly script: string;
  /** Lines that say what the file is of. */
  readonly head: readonly string[];
}

const PORT = 29_500;
/** Devices of the largest host that runs one operating system; a rack of NVL72 runs eighteen. */
const MOST_OF_A_HOST = 16;

/**
 * The job of a plan on a cluster.
 *
 * @param devices of the plan
 * @throws E_LAUNCHER where the devices are no GPUs, are of a rack, or do not fill their hosts
 */
export function jobOf(
  { model, devices }: { readonly model: string; readonly devices: number },
  { id, accelerator, devicesPerHost }: Cluster,
  { script, head }: Pick<Job, 'script' | 'head'>,
): Job {
  const refuse = (why: string, hint: string): never => {
    throw new ShardwrightError('E_LAUNCHER', why, { hint });
  };
  if (gpuName(accelerator) === undefined)
    refuse(
      `${accelerator} is not started by torchrun`,
      'start the program with the launcher of its own software.',
    );
  if (devicesPerHost > MOST_OF_A_HOST)
    refuse(
      `a host of ${id} is a rack of ${devicesPerHost} devices, which are those of several nodes`,
      'start torchrun on each node of the rack, its ranks in the order of the nodes.',
    );
  const perHost = Math.min(devices, devicesPerHost);
  if (devices % perHost !== 0)
    refuse(
      `${devices} devices do not fill hosts of ${perHost}`,
      `plan for a multiple of ${perHost} devices.`,
    );
  const name = model
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^[^a-z]+|-+$/g, '')
    .slice(0, 40);
  return {
    name: name === '' ? 'plan' : name.replace(/-+$/, ''),
    hosts: devices / perHost,
    devicesPerHost: perHost,
    accelerator,
    script,
    head,
  };
}

/** The file of a launcher. */
export function launcherFile(launcher: Launcher, job: Job): ExportFile {
  return {
    slurm: { name: 'run.slurm', text: slurmText(job) },
    kubernetes: { name: 'jobset.yaml', text: jobSetText(job) },
    skypilot: { name: 'sky.yaml', text: skyText(job) },
  }[launcher];
}

/** `H100` of `H100-SXM5-80GB`, as clouds name it; undefined for what is no GPU. */
function gpuName(accelerator: string): string | undefined {
  const [, name] = /^((?:[ABGHLV]|GB|GH|MI)\d+[A-Z]*)(?:-|$)/.exec(accelerator) ?? [];
  // Two memories have one name: the larger one says so.
  return accelerator.startsWith('A100') && accelerator.endsWith('80GB') ? 'A100-80GB' : name;
}

/** Names come from anywhere: one with a line break would be a command. */
const comments = ({ head }: Job): string[] => head.map((line) => `# ${pyComment(line)}`);

function slurmText(job: Job): string {
  return [
    '#!/bin/bash',
    ...comments(job),
    `#SBATCH --job-name=${job.name}`,
    `#SBATCH --nodes=${job.hosts}`,
    '#SBATCH --ntasks-per-node=1',
    `#SBATCH --gpus-per-node=${job.devicesPerHost}`,
    'set -euo pipefail',
    '# The first host is where the ranks find each other. Not by head, which may end before',
    '# scontrol does: pipefail would call that an error.',
    'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
    `srun torchrun --nnodes ${job.hosts} --nproc-per-node ${job.devicesPerHost} \\`,
    `  --rdzv-backend c10d --rdzv-endpoint "$first:${PORT}" --rdzv-id "$SLURM_JOB_ID" \\`,
    `  ${job.script}`,
    '',
  ].join('\n');
}

/** The start of the ranks of one host, where the launcher numbers the hosts. */
function torchrun(job: Job, rank: string, first: string): string {
  return (
    `torchrun --nnodes ${job.hosts} --nproc-per-node ${job.devicesPerHost} --node-rank ${rank} ` +
    `--master-addr ${first} --master-port ${PORT} ${job.script}`
  );
}

function jobSetText(job: Job): string {
  const resource = job.accelerator.startsWith('MI') ? 'amd.com/gpu' : 'nvidia.com/gpu';
  // A JobSet names its pods NAME-GROUP-JOB-INDEX, under a headless service of its own name.
  const start = torchrun(job, '$JOB_COMPLETION_INDEX', `${job.name}-ranks-0-0.${job.name}`);
  return [
    ...comments(job),
    'apiVersion: jobset.x-k8s.io/v1alpha2',
    'kind: JobSet',
    'metadata:',
    `  name: ${job.name}`,
    'spec:',
    '  replicatedJobs:',
    '    - name: ranks',
    '      replicas: 1',
    '      template:',
    '        spec:',
    '          completionMode: Indexed',
    `          parallelism: ${job.hosts}`,
    `          completions: ${job.hosts}`,
    '          backoffLimit: 0',
    '          template:',
    '            spec:',
    '              restartPolicy: Never',
    '              containers:',
    '                - name: ranks',
    '                  image: IMAGE # an image with PyTorch and the program',
    `                  command: ["bash", "-c", ${JSON.stringify(start)}]`,
    '                  resources:',
    '                    limits:',
    `                      ${resource}: ${job.devicesPerHost}`,
    '                  volumeMounts:',
    '                    - { name: shm, mountPath: /dev/shm }',
    '              volumes:',
    '                - { name: shm, emptyDir: { medium: Memory } }',
    '',
  ].join('\n');
}

function skyText(job: Job): string {
  const start = torchrun(
    job,
    '"$SKYPILOT_NODE_RANK"',
    '"$(echo "$SKYPILOT_NODE_IPS" | sed -n 1p)"',
  );
  return [
    ...comments(job),
    `name: ${job.name}`,
    'resources:',
    `  accelerators: ${gpuName(job.accelerator) ?? job.accelerator}:${job.devicesPerHost}`,
    `num_nodes: ${job.hosts}`,
    'workdir: .',
    'run: |',
    `  ${start}`,
    '',
  ].join('\n');
}
