// SPDX-License-Identifier: Apache-2.0
// Timeline of one device: the last ten seconds, with a lane for each client.

import {element, named, setAttribute, setText} from './dom.js';
import {number} from './format.js';

const kSpanMs = 10000;
const kDelayMs = 400;  // Delay of the display, so that it moves evenly between two updates.
const kFrameMs = 40;
const kLanesMax = 8;
const kLaneHeight = 30, kAxisHeight = 22, kBarHeight = 24;
const kTickMs = 2000;
const kLabelsApart = 64;  // Distance in CSS pixels.
const kClasses = ['high', 'normal', 'low'];
const kCalm = matchMedia('(prefers-reduced-motion: reduce)');

// Activity in a time interval. `share` is between 0 and 1.
class Lane {
  constructor() { this.bars = []; }  // {from, to, share}, oldest first.
  add(from, to, share) { this.bars.push({from, to, share}); }
  forgetBefore(time) {
    let keep = 0;
    while (keep < this.bars.length && this.bars[keep].to < time) ++keep;
    if (keep > 0) this.bars.splice(0, keep);
  }
  get isEmpty() { return this.bars.length === 0; }
}

export class Timeline {
  constructor() {
    this.labels = element('ol', {class: 'lanes'});
    this.canvas = element('canvas', {role: 'img'});
    this.frame = element('div', {class: 'timeline-picture'}, this.canvas);
    this.remarks = element('p', {class: 'hint remarks', hidden: ''});
    this.root = element('div', {class: 'timeline'}, this.labels, this.frame, this.remarks);
    this.lanes = new Map();   // Lanes by client.
    this.facts = new Map();   // Name and class of clients, including those that have left.
    this.shown = [];
    this.at = 0;              // Time of the last update on the server's clock.
    this.received = 0;        // Time of the last update on the browser's clock.
    this.drawn = 0;
    this.size = {width: 0, height: 0};
    this.end('now');
    new ResizeObserver(() => this.resize()).observe(this.frame);
  }

  // `part`: {bin_ms, ran: [{client, from_ms, us: [...]}]}. Times of a bin that is sent twice are
  // added.
  update(at, part, clients) {
    this.at = at;
    this.received = performance.now();
    for (const client of clients) this.facts.set(client.client, {name: client.name, of: client.class});
    for (const {client, from_ms, us} of part?.ran ?? []) {
      if (!this.lanes.has(client)) this.lanes.set(client, new Lane());
      const lane = this.lanes.get(client);
      us.forEach((each, index) => {
        const from = from_ms + index * part.bin_ms;
        if (each > 0) lane.add(from, from + part.bin_ms, Math.min(1, each / 1000 / part.bin_ms));
      });
    }
    const here = new Set(clients.map((client) => client.client));
    for (const id of here) if (!this.lanes.has(id)) this.lanes.set(id, new Lane());
    for (const [id, lane] of this.lanes) {
      lane.forgetBefore(at - kSpanMs - 2 * kDelayMs);
      if (lane.isEmpty && !here.has(id)) {
        this.lanes.delete(id);
        this.facts.delete(id);
      }
    }
    this.chooseLanes();
    this.remark(part);
    this.paint(true);
  }

  // Sets the label of the right edge.
  end(word) {
    if (word === this.endWord) return;
    this.endWord = word;
    setAttribute(this.canvas, 'aria-label', `Who ran in the ${kSpanMs / 1000} s until ${word}`);
    this.paint(true);
  }

  remark(part) {
    const words = [];
    if (part?.coarse) words.push(`Drawn from device time between updates: ${part.coarse}.`);
    if (part?.lost) words.push(`${number(part.lost)} commands are not drawn, because they were overwritten before they were read.`);
    this.remarks.hidden = words.length === 0;
    setText(this.remarks, words.join(' '));
  }

  // The busiest clients have separate lanes in a stable order: by class, then by age. The others
  // share one lane.
  chooseLanes() {
    const known = [...this.lanes.keys()].filter((id) => this.facts.has(id));
    const busy = (id) => this.lanes.get(id).bars.reduce((sum, bar) => sum + bar.share * (bar.to - bar.from), 0);
    let own = known;
    if (known.length > kLanesMax) {
      const keptBefore = new Set(this.shown.map((lane) => lane.id));
      // A client keeps its lane unless another one is much busier.
      const weight = new Map(known.map((id) => [id, busy(id) * (keptBefore.has(id) ? 1.5 : 1)]));
      own = known.sort((a, b) => weight.get(b) - weight.get(a)).slice(0, kLanesMax - 1);
    }
    const rank = (id) => kClasses.indexOf(this.facts.get(id).of);
    own.sort((a, b) => rank(a) - rank(b) || a - b);
    this.shown = own.map((id) => ({id, name: this.facts.get(id).name, of: this.facts.get(id).of, lanes: [this.lanes.get(id)]}));
    const others = [...this.lanes.keys()].filter((id) => !own.includes(id));
    if (others.length > 0) {
      this.shown.push({id: 'others', name: `${others.length} others`, of: 'others', lanes: others.map((id) => this.lanes.get(id))});
    }
    this.label();
  }

  label() {
    while (this.labels.children.length > this.shown.length) this.labels.lastChild.remove();
    this.shown.forEach((lane, index) => {
      let label = this.labels.children[index];
      if (!label) {
        label = element('li', {}, element('span', {class: 'chip'}), named(''));
        this.labels.append(label);
      }
      label.dataset.class = lane.of;
      const name = label.querySelector('.name');
      setText(name, lane.name);
      name.title = lane.name;
    });
    this.resize();
  }

  resize() {
    const width = this.frame.clientWidth, height = this.shown.length * kLaneHeight + kAxisHeight;
    const scale = devicePixelRatio || 1;
    if (width === this.size.width && height === this.size.height && scale === this.size.scale) return;
    this.size = {width, height, scale};
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.paint(true);
  }

  // Called for each animation frame.
  paint(at_once = false) {
    const now = performance.now();
    if (!at_once && (kCalm.matches || now - this.drawn < kFrameMs)) return;
    const {width, scale} = this.size;
    if (width === 0) return;
    this.drawn = now;
    // A column of pixels always shows the same time interval, and the display moves by whole
    // columns, so that it does not shimmer.
    const column_ms = kSpanMs / this.canvas.width;
    const wanted = this.at - (kCalm.matches ? 0 : kDelayMs - Math.min(now - this.received, 2 * kDelayMs));
    const end = Math.floor(wanted / column_ms) * column_ms;
    const style = getComputedStyle(this.root);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const context = this.canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, this.size.height);
    this.shown.forEach((lane, index) => {
      const bottom = index * kLaneHeight + kLaneHeight - 3;
      context.fillStyle = colour('track');
      context.fillRect(0, bottom - kBarHeight, width, kBarHeight);
      context.fillStyle = colour(lane.of);
      const shares = this.shares(lane.lanes, end - kSpanMs, column_ms);
      shares.forEach((share, at) => {
        const height = Math.max(1, Math.min(1, share) * kBarHeight);
        if (share > 0.002) context.fillRect(at / scale, bottom - height, 1 / scale, height);
      });
    });
    this.paintAxis(context, style.fontFamily, colour);
  }

  // Computes for each column of pixels the share of its time that the clients of these lanes ran.
  shares(lanes, start, column_ms) {
    const shares = new Float32Array(this.canvas.width);
    for (const {bars} of lanes) {
      for (const {from, to, share} of bars) {
        const begin = Math.max(0, (from - start) / column_ms), end = Math.min(shares.length, (to - start) / column_ms);
        for (let at = Math.floor(begin); at < end; ++at) {
          shares[at] += (Math.min(at + 1, end) - Math.max(at, begin)) * share;
        }
      }
    }
    return shares;
  }

  paintAxis(context, fontFamily, colour) {
    const height = this.shown.length * kLaneHeight;
    context.font = `11px ${fontFamily}`;
    context.textBaseline = 'top';
    for (let back = 0; back <= kSpanMs; back += kTickMs) {
      const at = Math.round(this.size.width * (1 - back / kSpanMs));
      context.fillStyle = colour('line');
      context.fillRect(Math.min(at, this.size.width - 1), 0, 1, height + 4);
      context.fillStyle = colour('muted');
      context.textAlign = back === 0 ? 'right' : back === kSpanMs ? 'left' : 'center';
      // The outer label is drawn next to its tick and needs the space of the next label.
      if (back === kSpanMs - kTickMs && this.size.width * kTickMs / kSpanMs < kLabelsApart) continue;
      context.fillText(back === 0 ? this.endWord : `−${back / 1000} s`, at, height + 7);
    }
  }
}
