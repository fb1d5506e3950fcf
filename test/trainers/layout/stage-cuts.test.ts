import { describe, expect, it } from 'vitest';

import { parseLayout } from '../../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../../src/sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../../../src/sweep/model/question.ts';
import { evenBounds, statedBounds } from '../../../src/sweep/step/stages/stage-bounds.ts';
import {
  cutsText,
  megatronCuts,
  stageLetters,
  torchtitanCuts,
} from '../../../src/trainers/layout/stage-cuts.ts';
import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { TABLE } from '../../plan/support.ts';
import { layoutModel } from '../layout-model.ts';

const read = (text: string, devices: number, layers: number): ReturnType<typeof readLayoutFile> =>
  readLayoutFile(text, { file: 'job', devices, model: layoutModel({ layers }) });

/** Megatron-LM on so many devices, one tensor rank. */
const megatron = (more: string): string =>
  `--tensor-model-parallel-size 1 --micro-batch-size 1 ${more}`;

describe('stages as Megatron-LM cuts them', () => {
  // The values of get_num_layers_to_build of megatron-core 0.16.1, chunk by chunk.
  it.each([
    [{ first: 5, last: 4 }, 4, 1, 25, [5, 8, 8, 4]],
    [{ first: 4 }, 2, 2, 10, [2, 3, 2, 3]],
    [{ last: 2 }, 4, 2, 26, [4, 4, 4, 1, 4, 4, 4, 1]],
    [{ countsEmbedding: true, countsLoss: true }, 4, 1, 30, [7, 8, 8, 7]],
    [{ countsLoss: true }, 2, 2, 7, [2, 2, 2, 1]],
    [{}, 4, 2, 16, [2, 2, 2, 2, 2, 2, 2, 2]],
  ] as const)('%j on %i stages of %i chunks, %i layers', (stated, pp, chunks, layers, cuts) => {
    expect(megatronCuts(stated, pp, chunks, layers)).toEqual(cuts);
  });

  it('a layout of letters: repetitions, commas, embedding and loss alone, further tokens', () => {
    expect(stageLetters('Et*3|(tt|)*29,m|L')).toEqual({
      layers: [3, ...Array<number>(29).fill(2), 0, 0],
      empty: 1,
      further: 1,
    });
    expect(stageLetters('Et*3|(tt|)*28t*2mL')).toEqual({
      layers: [3, ...Array<number>(28).fill(2), 2],
      empty: 0,
      further: 1,
    });
    expect(stageLetters('E|ttt|tttt|L')).toEqual({ layers: [0, 3, 4, 0], empty: 0, further: 0 });
    expect(stageLetters('embedding decoder|decoder decoder|loss')?.layers).toEqual([1, 2, 0]);
    for (const none of ['tt|tt', 'Etx|L', '', 'Et*9999999L', '(E'])
      expect(stageLetters(none)).toBeUndefined();
  });

  it('files of arguments and dumps state them', () => {
    const found = read(
      megatron(
        '--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 3',
      ),
      8,
      24,
    );
    expect(found).toMatchObject({ text: 'pp=4,stages=5+8x2+3,dp=2,mbs=1,zero=0', notPriced: [] });
    expect(
      read(
        megatron(
          '--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et*3|(tt|)*2t*4L"',
        ),
        8,
        11,
      ).text,
    ).toContain('pp=2,vp=2,stages=3+2x2+4');
    const dump = (layout: string): string =>
      `model:\n  tensor_model_parallel_size: 1\n  pipeline_model_parallel_size: 2\n  pipeline_model_parallel_layout: ${layout}\ntrain: { micro_batch_size: 1 }\n`;
    expect(read(dump('[[embedding, decoder, decoder], [decoder, loss]]'), 8, 3).text).toContain(
      'pp=2,stages=2+1',
    );
    expect(read(dump('"Et|tm|ttt|L"'), 8, 5)).toMatchObject({
      text: expect.stringContaining('pp=2,vp=2,stages=1x2+3+0') as string,
    });
    const alone = read(dump('"Et*3|tt|m|L"'), 8, 5);
    expect(alone.text).toContain('pp=2,vp=2,dp=4');
    expect(alone.notPriced).toMatchObject([
      {
        key: 'model.pipeline_model_parallel_layout',
        why: expect.stringContaining('equal parts') as string,
      },
    ]);
  });

  it.each([
    [
      '--pipeline-model-parallel-size 4',
      'E_INPUT 30 layers do not divide over 4 stages (pipeline_model_parallel_size 4)',
    ],
    [
      '--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5',
      'E_INPUT the 25 layers that are left do not divide over 3 stages',
    ],
    [
      '--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2',
      'E_INPUT 15 layers of a stage do not divide over its 2 chunks',
    ],
    [
      '--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 0',
      "--decoder-first-pipeline-num-layers: found '0', wanted a whole number of layers",
    ],
    [
      '--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 12 --account-for-loss-in-pipeline-split',
      'layers of the first or last stage are stated, and embedding or loss count',
    ],
    [
      '--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 12 --num-layers-per-virtual-pipeline-stage 3',
      'num_layers_per_virtual_pipeline_stage: found with layers of the first or last stage',
    ],
    [
      '--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3|tL',
      'pipeline_model_parallel_layout: found 4 layers (t), wanted 30',
    ],
    [
      '--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*15|t*15L',
      'pipeline_model_parallel_layout: found 2 stages, wanted a multiple of pipeline_model_parallel_size 4',
    ],
    [
      '--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*15|x*15L',
      "--pipeline-model-parallel-layout: found 'Et*15|x*15L', wanted letters",
    ],
  ])('%s is refused', (more, wanted) => {
    expect(() => read(megatron(more), 8, 30)).toThrow(wanted.replace('E_INPUT ', ''));
  });
});

describe('stages as torchtitan cuts them', () => {
  // The values of _generate_llm_fqn_per_model_part of torchtitan 0.3.0.
  it.each([
    [4, 32, 1, 1, [8, 9, 8, 7]],
    [16, 126, 1, 1, [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]],
    [8, 61, 1, 1, [7, 8, 8, 8, 8, 8, 8, 6]],
    [2, 3, 0, 0, [2, 1]],
    [4, 30, 2, 3, [7, 9, 9, 5]],
    [1, 5, 1, 1, [5]],
  ] as const)(
    '%i parts of %i layers, %i and %i for the ends',
    (parts, layers, input, output, cuts) => {
      const found = torchtitanCuts(parts, layers, input, output);
      expect(found).toEqual(cuts);
      expect((found as number[]).reduce((sum, n) => sum + n, 0)).toBe(layers);
    },
  );

  it("torchtitan's settings give the layers of each stage", () => {
    const job = (more: string): string => `[parallelism]\npipeline_parallel_degree = 4\n${more}`;
    expect(read(job(''), 8, 32).text).toContain('pp=4,stages=8+9+8+7');
    expect(
      read(
        job(
          'pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0\n',
        ),
        8,
        32,
      ).text,
    ).not.toContain('stages');
    expect(
      read(
        job(
          'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_layers_per_stage = 5\n',
        ),
        8,
        38,
      ).text,
    ).toContain('pp=4,vp=2,stages=4+5x6+4');
    expect(() => read(job('pipeline_parallel_layers_per_stage = 5\n'), 8, 32)).toThrow(
      'pipeline_parallel_layers_per_stage: found 5, which makes 7 parts of 32 layers; wanted a multiple of pipeline_parallel_degree 4',
    );
    expect(() => read(job('pipeline_parallel_first_stage_less_layers = 12\n'), 8, 32)).toThrow(
      'give 4 chunks 11 each, wanted 12',
    );
  });
});

describe('the price of stated stages', () => {
  const SMALL: SweepQuestion = {
    model: 'small',
    config: JSON.stringify({
      model_type: 'llama',
      hidden_size: 512,
      intermediate_size: 1536,
      num_attention_heads: 8,
      num_key_value_heads: 8,
      num_hidden_layers: 8,
      vocab_size: 4096,
      torch_dtype: 'bfloat16',
    }),
    devices: 4,
    cluster: 'dgx-h100',
    sequence: 256,
    globalBatch: 16,
    cost: 'nccl',
  };

  it('are the first units of chunks, with the embedding before and the head behind', () => {
    expect(statedBounds([2, 2, 2, 2])).toEqual(evenBounds(8, 4));
    expect(statedBounds([0, 5, 3, 0])).toEqual([0, 1, 6, 9, 10]);
    expect(cutsText([4, 2, 2, 2, 5])).toBe('4+2x3+5');
    // Llama 3 405B has 126 layers on 16 stages: the first and the last have one layer less
    // (arXiv:2407.21783, section 3.3.2).
    expect(evenBounds(126, 16)).toEqual(statedBounds([7, ...new Array<number>(14).fill(8), 7]));
    // Seven layers on two and three stages: the first have the more.
    expect(evenBounds(7, 2)).toEqual(statedBounds([4, 3]));
    expect(evenBounds(7, 4)).toEqual(statedBounds([2, 2, 2, 1]));
  });

  it('equal parts that are stated cost what equal parts cost, and a longer stage is slower', async () => {
    const pricer = new LayoutPricer(TABLE);
    const price = async (text: string): Promise<{ seconds: number; layers: number[] }> => {
      const figures = await pricer.price(SMALL, parseLayout(text, 4));
      return {
        seconds: figures.seconds,
        layers: figures.composed.stages.map((s) => s.end - s.first),
      };
    };
    const even = await price('pp=4');
    expect(await price('pp=4,stages=2x4')).toEqual(even);
    const uneven = await price('pp=4,stages=1+4+2+1');
    expect(uneven.layers).toEqual([1, 4, 2, 1]);
    expect(uneven.seconds).toBeGreaterThan(even.seconds);
    expect((await price('pp=4,stages=0+4x2+0')).layers).toEqual([0, 4, 4, 0]);
    expect((await price('pp=2,dp=2,vp=2,stages=1+3+3+1')).layers).toEqual([1, 3, 3, 1]);
  });

  it.each([
    ['pp=2,dp=2,stages=4', 'stages has 1 parts, and pp x vp is 2'],
    ['pp=2,dp=2,stages=4+y', 'stages=4+y'],
    ['dp=4,stages=8', 'stages=8 without pp'],
    ['pp=4,stages=4+0+2+2', 'a part without layers'],
  ])('%s is refused', (text, wanted) => {
    expect(() => parseLayout(text, 4)).toThrow(wanted);
  });
});
