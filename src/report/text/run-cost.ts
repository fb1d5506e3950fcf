/** Prints what a run takes: time, device-hours, money, energy, failures. */

import type { Band, RunCost } from '../../cost/training/run-cost.ts';
import { countedText, countText, durationText, percentText, secondsText } from '../../units.ts';

/** The lines of a run below the answer. */
export function runLines(run: RunCost): string[] {
  const { price, tokensPerCurrency: each } = run;
  const money =
    price === undefined ? ['no price is known (--price 2.5USD)'] : [moneyRangeText(run)];
  const power = [energyText(run) ?? 'no rated power is known'];
  const worth =
    price === undefined || each === undefined
      ? ''
      : `, ${countText(Math.round(each))} for 1 ${price.currency}`;
  const hours = `${amountText(run.deviceHours)} device-hours`;
  return [
    `run       ${tokensText(run.tokens)} tokens in ${countedText(run.steps, 'step')}: ` +
      [wallText(run), hours, ...money, ...power].join(', '),
    `          ${countText(Math.round(run.tokensPerSecond))} tokens/s with failures${worth}`,
    `          goodput ${percentText(run.goodput)}: a failure every ` +
      `${durationText(run.betweenFailuresSeconds)}, a checkpoint of ` +
      `${secondsText(run.checkpointWriteSeconds)} every ` +
      `${durationText(run.checkpointEverySeconds)}, ${durationText(run.restartSeconds)} to ` +
      'restart',
    ...run.assumptions.map((text) => `          assumed: ${text}`),
  ];
}

/** `281 days (250 days to 404 days)`. */
export function wallText({ wallSeconds, wallSecondsBand }: RunCost): string {
  return withRange(wallSeconds, wallSecondsBand, durationText);
}

/** `1,079,000 USD (960,000 to 1,554,000)`; nothing where no price is known. */
export function moneyRangeText({ price, priceBand }: RunCost): string {
  if (price === undefined) return '';
  const text = moneyText(price.amount, price.currency);
  return priceBand === undefined || priceBand === null
    ? text
    : `${text} (${amountText(priceBand[0])} to ${amountText(priceBand[1])})`;
}

/** `37.9 MWh (81.4 kW), 13.3 t of CO2`; undefined where no rated power is known. */
export function energyText({
  energyMegawattHours,
  kilowatts,
  carbonTonnes,
}: RunCost): string | undefined {
  if (energyMegawattHours === undefined) return undefined;
  const power = kilowatts === undefined ? '' : ` (${amountText(kilowatts)} kW)`;
  const carbon = carbonTonnes === undefined ? '' : `, ${amountText(carbonTonnes)} t of CO2`;
  return `${amountText(energyMegawattHours)} MWh${power}${carbon}`;
}

/** A figure, and its range behind it where measured runs tell. */
export function withRange(
  value: number,
  band: Band | null | undefined,
  text: (value: number) => string,
): string {
  return band === undefined || band === null
    ? text(value)
    : `${text(value)} (${text(band[0])} to ${text(band[1])})`;
}

/** Tokens as people write them: 15T, 300B. */
export function tokensText(tokens: number): string {
  const [unit, name] = (
    [
      [1e12, 'T'],
      [1e9, 'B'],
      [1e6, 'M'],
    ] as const
  ).find(([u]) => tokens >= u) ?? [1, ''];
  return `${Number((tokens / unit).toPrecision(4))}${name}`;
}

/** An amount of money: 1,234,000 USD. */
export function moneyText(amount: number, currency: string): string {
  return `${amountText(amount)} ${currency}`;
}

/** Four digits that count. */
export function amountText(amount: number): string {
  return amount >= 1000
    ? countText(Number(amount.toPrecision(4)))
    : String(Number(amount.toPrecision(3)));
}
