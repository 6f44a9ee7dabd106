// SPDX-License-Identifier: Apache-2.0
// Human-readable numbers: three digits and a unit, or a dash for a missing value.

export const kNothing = '–';
const kKiB = 1024;

function isNumber(value) { return typeof value === 'number' && Number.isFinite(value); }

function threeDigits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function microseconds(us) {
  if (!isNumber(us)) return kNothing;
  if (us >= 1e6) return `${threeDigits(us / 1e6)} s`;
  if (us >= 1e3) return `${threeDigits(us / 1e3)} ms`;
  return `${threeDigits(us)} µs`;
}

export function bytes(count) {
  if (!isNumber(count)) return kNothing;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; count >= kKiB && unit < units.length - 1; ++unit) count /= kKiB;
  return `${threeDigits(count)} ${units[unit]}`;
}

export function percent(value) {
  if (!isNumber(value)) return kNothing;
  // Keeps a decimal, so that a fraction is not shown as a whole number.
  if (value < 100 && value > 99.9) return '99.9 %';
  return `${value === 100 || value === 0 ? value : value.toFixed(1)} %`;
}

export function wholePercent(value) { return isNumber(value) ? `${Math.round(value)} %` : kNothing; }

export function number(value) {
  return isNumber(value) ? value.toLocaleString('en', {maximumFractionDigits: 0}) : kNothing;
}

export function perSecond(value) {
  if (!isNumber(value)) return kNothing;
  return `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)} /s`;
}

export function age(seconds) {
  if (!isNumber(seconds)) return kNothing;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}
