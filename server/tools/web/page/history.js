// SPDX-License-Identifier: Apache-2.0
// Figures over time.

import {svg} from './dom.js';

const kWidth = 64, kHeight = 18;

// History of one figure over the last `span_ms`.
export class History {
  constructor(span_ms) {
    this.span_ms = span_ms;
    this.points = [];  // {at, value}, oldest first.
  }

  add(at, value) {
    if (typeof value !== 'number') return;
    this.points.push({at, value});
    while (this.points.length > 1 && this.points[0].at < at - this.span_ms) this.points.shift();
  }

  // Returns the growth of a counter in the last `window_ms`, per second; undefined with fewer than two points.
  // Returns 0 if the counter fell, because it was reset.
  rate(window_ms) {
    const last = this.points.at(-1);
    if (!last) return undefined;
    const from = this.points.find((point) => point.at >= last.at - window_ms);
    if (from === last) return undefined;
    return Math.max(0, last.value - from.value) / ((last.at - from.at) / 1000);
  }
}

// Sparkline of a History. `limit`, if given, is drawn across it.
export class Sparkline {
  constructor() {
    this.root = svg('svg', {class: 'spark', viewBox: `0 0 ${kWidth} ${kHeight}`, 'aria-hidden': 'true',
      preserveAspectRatio: 'none'});
    this.limit = svg('line', {class: 'limit', x1: 0, x2: kWidth});
    this.line = svg('polyline', {class: 'line'});
    this.root.append(this.limit, this.line);
  }

  // Maps the range from `low` to `high` to the height.
  update(history, {low = 0, high, limit}) {
    const points = history.points;
    const top = Math.max(high ?? 0, limit ?? 0, ...points.map((point) => point.value)) || 1;
    const height = (value) => kHeight - 1.5 - (kHeight - 3) * Math.max(0, Math.min(1, (value - low) / (top - low || 1)));
    const end = points.length ? points.at(-1).at : 0;
    // The line spans the full width even if there are only a few points.
    const span = points.length ? Math.max(1, end - points[0].at) : 1;
    const across = (at) => kWidth * (1 - (end - at) / span);
    this.line.setAttribute('points', points.map(({at, value}) => `${across(at).toFixed(1)},${height(value).toFixed(1)}`).join(' '));
    this.limit.style.display = limit === undefined ? 'none' : '';
    if (limit === undefined) return;
    this.limit.setAttribute('y1', height(limit));
    this.limit.setAttribute('y2', height(limit));
  }
}
