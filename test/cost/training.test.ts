import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { FITTED } from '../../src/cost/kernels/fitted.ts';
import { tailFactor } from '../../src/cost/kernels/tiles.ts';
import { KernelSum } from '../../src/cost/training/kernels.ts';
import { stepMemory } from '../../src/cost/training/memory.ts';
import { activeMatmulParameters, attentionProducts, stageLayers } from '../../src/cost/training/shape.ts';
import type { ParallelPlan, TrainingSystem, TransformerShape } from '../../src/cost/training/shape.ts';
import { stepTime } from '../../src/cost/training/step.ts';
import type { MeasuredRun } from '../../src/cost/validation/runs.ts';
import { parseRuns } from '../../src/cost/validation/runs.ts';
import { predictRun } from '../../src/cost/validation/validate.ts';

const file = new URL('../fixtures/runs/measured.csv.gz', import.meta.url);
const { runs } = parseRuns(gunzipSync(readFileSync(file)).toString('utf8'));
const run = (id: string): MeasuredRun => {
  const found = runs.find((r) => r.id === id);
  if (found === undefined) throw new Error(`no run ${id}`);
  return found;
};

describe('last wave of tiles', () => {
  // 256 x 128 tiles on 108 multiprocessors: 8 x 56 = 448 tiles take 5 waves of 108 places.
  test('whole waves by hand', () => {
    expect(tailFactor(2048, 7168, 1, 'A100-SXM4-80GB')).toBeCloseTo(540 / 448, 12);
    // 108 tiles fill the device exactly.
    expect(tailFactor(9 * 256, 12 * 128, 1, 'A100-SXM4-80GB')).toBe(1);
    expect(tailFactor(2048, 7168, 1, 'TPU v5p')).toBe(1);
  });

  test('never below 1, and gone in the limit of many tiles', () => {
    for (const m of [1, 64, 100, 129, 2048, 5000])
      for (const n of [64, 1000, 4096, 7168]) expect(tailFactor(m, n, 1, 'H100')).toBeGreaterThanOrEqual(1);
    expect(tailFactor(256 * 999, 128 * 999, 1, 'H100')).toBeLessThan(1.001);
  });
});

describe('matrix units of 8 bits', () => {
  test('casts cost memory traffic by hand, the output head stays wide', () => {
    const { system } = run('r0003');
    expect(system.matmulUnit).toBe('fp8');
    const with5 = new KernelSum(system).matmul(8192, 4096, 4096).time.deviceSeconds;
    const with0 = new KernelSum({ ...system, narrowCastBytes: 0 }).matmul(8192, 4096, 4096).time.deviceSeconds;
    const { memoryBytesPerSecond, memoryEfficiency } = system.cluster;
    const bytes = 5 * (8192 * 4096 + 4096 * 4096) * FITTED.pointwiseTraffic;
    expect(with5 - with0).toBeCloseTo(bytes / (memoryBytesPerSecond * memoryEfficiency), 12);
    const wide = new KernelSum(system).wideMatmul(8192, 4096, 128_256).time.deviceSeconds;
    const bf16 = new KernelSum({ ...system, matmulUnit: 'bf16' }).matmul(8192, 4096, 128_256).time.deviceSeconds;
    expect(wide).toBe(bf16);
  });
});

describe('power and overlap', () => {
  test('half of the power takes a cube root of 2 longer in matmuls', () => {
    const { system } = run('r0001');
    const at = (powerShare: number): number =>
      new KernelSum({ ...system, powerShare }).wideMatmul(8192, 8192, 8192).productSeconds;
    expect(at(0.5) / at(1)).toBeCloseTo(2 ** (1 / 3), 9);
  });

  test('async tensor parallelism is faster, by less than all of the collectives', () => {
    // Llama 8B on 8 x 8 devices with tensor and sequence parallelism.
    const { shape, system, plan: base } = run('r0001');
    const plan = { ...base, tensor: 8, sequenceParallel: true, microbatch: 12, globalBatch: 96 };
    const at = (tensorOverlap: number): number => stepTime(shape, plan, { ...system, tensorOverlap }).seconds;
    expect(at(1)).toBeLessThan(at(0.75));
    expect(at(0.75)).toBeLessThan(at(0));
    // A plan without tensor parallelism has nothing to hide.
    const alone = run('r0001');
    const of = (tensorOverlap: number): number =>
      stepTime(alone.shape, alone.plan, { ...alone.system, tensorOverlap }).seconds;
    expect(of(1)).toBe(of(0));
  });

  test('weights that a pipeline keeps gathered are gathered once a step, whatever the microbatches', () => {
    const { shape, plan, system } = run('r0013');
    const exposed = (globalBatch: number): number =>
      stepTime(shape, { ...plan, globalBatch }, { ...system, overlap: false }).exposedSeconds;
    expect(exposed(plan.globalBatch * 2)).toBe(exposed(plan.globalBatch));
  });
});

test('a prediction with other constants differs, so that a refit means something', () => {
  const slow = predictRun(run('r0001'), { ...FITTED, hotMatmulTime: 2 * FITTED.hotMatmulTime });
  expect(slow.seconds).toBeGreaterThan(predictRun(run('r0001')).seconds);
  expect(slow.peakBytes).toBe(predictRun(run('r0001')).peakBytes);
});

/** DeepSeek-V3 by its public config: 61 layers of which 3 are dense, 256 experts of width 2048, 8 for a token and one shared. */
const DEEPSEEK_V3: TransformerShape = {
  layers: 61,
  hidden: 7168,
  heads: 128,
  kvHeads: 128,
  headDim: 128,
  ffn: 18432,
  gated: true,
  vocab: 129_280,
  sequence: 4096,
  experts: { count: 256, topK: 8, ffn: 2048, shared: 1, denseLayers: 3 },
  latent: { query: 1536, keyValue: 512, rotary: 64 },
};
const PLAN: ParallelPlan = {
  replicas: 64,
  shards: 1,
  tensor: 1,
  sequenceParallel: false,
  pipeline: 4,
  chunks: 4,
  context: 1,
  expert: 64,
  microbatch: 1,
  globalBatch: 4096,
  recompute: 'none',
  zeroStage: 1,
};
/** Software of an 8-bit run on H100 with its experts, as the tests below change it. */
const SYSTEM: TrainingSystem = {
  ...run('r0003').system,
  savedOperandBytes: 1,
  castWeightsKept: true,
  expertTokensOnce: false,
  expertOverlap: false,
};

describe('latent attention and experts', () => {
  test('active parameters are those of the public count', () => {
    // facts/model_configs.json, deepseek-v3: active_excl_input_embedding 36,625,603,584, norms and routers included.
    expect(activeMatmulParameters(DEEPSEEK_V3) / 36_625_603_584).toBeCloseTo(1, 2);
    const sum = attentionProducts(DEEPSEEK_V3).reduce((n, [k, m]) => n + k * m, 0);
    expect(sum).toBe(7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168);
    // Tensor parallelism splits the products of the heads, not those to the latents, which all heads share.
    const half = attentionProducts(DEEPSEEK_V3, 2).reduce((n, [k, m]) => n + k * m, 0);
    expect(half).toBe(7168 * (1536 + 576) + (sum - 7168 * (1536 + 576)) / 2);
  });

  const seconds = (change: Partial<TrainingSystem>, plan: Partial<ParallelPlan> = {}): number =>
    stepTime(DEEPSEEK_V3, { ...PLAN, ...plan }, { ...SYSTEM, ...change }).seconds;

  test('tokens that cross to a host once take less time than a copy for each expert, overlapped ones less again', () => {
    expect(seconds({ expertTokensOnce: true })).toBeLessThan(seconds({}));
    expect(seconds({ expertOverlap: true })).toBeLessThan(seconds({}));
    // Without an exchange there is nothing to shorten.
    const alone = { expert: 1, replicas: 64 };
    expect(seconds({ expertTokensOnce: true }, alone)).toBe(seconds({}, alone));
  });

  test('experts in one kernel are faster than one after the other, and the more the more there are on a device', () => {
    const gain = (expert: number): number =>
      seconds({ groupedExperts: false, compiled: false }, { expert }) -
      seconds({ groupedExperts: true, compiled: false }, { expert });
    expect(gain(64)).toBeGreaterThan(0);
    expect(gain(8)).toBeGreaterThan(gain(64));
  });

  test('separate products: a launch and the waves of each, never less device time than one kernel', () => {
    const of = (separate: boolean) =>
      new KernelSum({ ...SYSTEM, matmulUnit: 'bf16' }).matmul(2048, 7168, 4096, { count: 16, separate }).time;
    const once = new KernelSum({ ...SYSTEM, matmulUnit: 'bf16' }).matmul(2048, 7168, 4096).time;
    expect(of(true).deviceSeconds / once.deviceSeconds).toBeCloseTo(16, 9);
    expect(of(true).hostSeconds / once.hostSeconds).toBeCloseTo(16, 9);
    expect(of(false).hostSeconds).toBe(once.hostSeconds);
    expect(of(false).deviceSeconds).toBeLessThan(of(true).deviceSeconds);
  });

  test('a further token costs a layer and a head on the last stage, which gets fewer layers for it', () => {
    const ahead = { ...DEEPSEEK_V3, furtherTokens: 1 };
    const places = { ...SYSTEM, headPlaces: true };
    expect(stepTime(ahead, PLAN, places).seconds).toBeGreaterThan(stepTime(DEEPSEEK_V3, PLAN, places).seconds);
    const [with1, without] = [ahead, DEEPSEEK_V3].map((s) => stageLayers(s, PLAN, places)[3]);
    expect(with1).toBeLessThan(without);
  });
});

describe('layers of pipeline stages', () => {
  const { shape, plan, system } = run('r0013');
  const of = (headPlaces: boolean, layers: number, pipeline: number, chunks: number): number[] =>
    stageLayers({ ...shape, layers }, { ...plan, pipeline, chunks }, { ...system, headPlaces });

  test('Llama 405B: 126 layers on 16 stages of 8 chunks, the embedding and the head in place of one each (arXiv:2407.21783)', () => {
    expect(of(true, 126, 16, 8)).toEqual([7, ...new Array<number>(14).fill(8), 7]);
    expect(of(false, 126, 16, 8).slice(-2)).toEqual([8, 7]);
  });

  test('stages that layers fill evenly stay so; no layer is lost', () => {
    expect(of(true, 80, 4, 5)).toEqual([20, 20, 20, 20]);
    for (const headPlaces of [false, true])
      for (const layers of [1, 7, 61, 126])
        for (const pipeline of [1, 2, 5, 16])
          expect(of(headPlaces, layers, pipeline, 2).reduce((a, b) => a + b, 0)).toBe(layers);
  });
});

describe('what is saved and what is made again', () => {
  const bytes = (system: Partial<TrainingSystem>, recompute: ParallelPlan['recompute'] = 'none'): number =>
    stepMemory(DEEPSEEK_V3, { ...PLAN, recompute }, { ...SYSTEM, ...system }).activationBytes;

  test('operands of 8 bits save memory; cheap modules made again save more, whole layers most', () => {
    expect(bytes({ savedOperandBytes: 1 })).toBeLessThan(bytes({ savedOperandBytes: 2 }));
    expect(bytes({}, 'modules')).toBeLessThan(bytes({}));
    expect(bytes({}, 'full')).toBeLessThan(bytes({}, 'modules'));
  });

  test('cheap modules cost less time than everything, more than nothing', () => {
    const [none, modules, products, full] = (['none', 'modules', 'products', 'full'] as const).map(
      (recompute) => stepTime(DEEPSEEK_V3, { ...PLAN, recompute }, SYSTEM).seconds,
    );
    expect(none).toBeLessThan(modules);
    expect(modules).toBeLessThan(products);
    expect(products).toBeLessThan(full);
  });

  test('activations that wait in the host fill the device and no more; states never move', () => {
    // Llama 8B with 4 sequences a device: its activations are beyond it, its states are not.
    const { shape, plan, system } = run('r0003');
    const at = (offloadedActivations: boolean) =>
      stepMemory(shape, { ...plan, microbatch: 4, globalBatch: 32 }, { ...system, offloadedActivations });
    const { memoryBytes } = system.cluster;
    expect(at(false).peakBytes).toBeGreaterThan(memoryBytes);
    expect(at(true).peakBytes / memoryBytes).toBeCloseTo(1, 9);
    const { activationBytes: moved, peakBytes: filled, ...kept } = at(true);
    expect(at(false)).toMatchObject(kept);
    expect([moved < at(false).activationBytes, filled < at(false).peakBytes]).toEqual([true, true]);
  });

  test('weights that stay cast cost the cast of the activations only', () => {
    const cost = (castWeightsKept: boolean): number =>
      new KernelSum({ ...SYSTEM, castWeightsKept }).matmul(8192, 4096, 4096, { weight: true }).time.deviceSeconds;
    const { memoryBytesPerSecond, memoryEfficiency } = SYSTEM.cluster;
    const cast =
      (SYSTEM.narrowCastBytes * 4096 * 4096 * FITTED.pointwiseTraffic) / (memoryBytesPerSecond * memoryEfficiency);
    // Compiled, both casts and the one of the activations alone are one launch each.
    expect(cost(false) - cost(true)).toBeCloseTo(cast, 9);
  });
});

describe('microbatches that no source states', () => {
  const header =
    'id,group,source,model,layers,hidden,heads,kv_heads,ffn,ffn_type,vocab,n_experts,top_k,moe_ffn,seq,gbs,mbs,gpus,gpu_type,dp,fsdp,zero_stage,tp,sp,pp,vp,cp,ep,ac_mode,dtype,extras,tokens_s_gpu,step_time_s,tflops_gpu,tflops_convention,mfu_pct,mem,mem_unit,status,grad_accum';
  const planOf = (passes: string, tensor: number, pipeline: number): ParallelPlan => {
    const cells = `x,g,a source,GPT,40,6144,48,,,gelu,51200,,,,2048,1024,,256,A100-80GB,${256 / tensor / pipeline},,,${tensor},,${pipeline},,,,full,fp16,,,10,,,,,,ok,${passes}`;
    return parseRuns(`${header}\n${cells}\n`).runs[0].plan;
  };

  test('1 in a pipeline, else the largest that fits; all at once where gradients are not summed', () => {
    expect(planOf('', 8, 2).microbatch).toBe(1);
    const alone = planOf('', 8, 1).microbatch;
    expect(alone).toBeGreaterThan(1);
    expect(32 % alone).toBe(0);
    expect(planOf('1', 8, 1).microbatch).toBe(32);
    expect(planOf('4', 8, 2).microbatch).toBe(16);
  });
});
