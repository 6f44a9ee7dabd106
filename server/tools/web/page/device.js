// SPDX-License-Identifier: Apache-2.0
// One device: its current clients, its figures, the timeline, and the table of clients.

import {ClientTable, kMetLow, usualOrder} from './clients.js';
import {element, keyed, named, setAttribute, setText} from './dom.js';
import {age, bytes, kNothing, number, percent, perSecond, wholePercent} from './format.js';
import {History} from './history.js';
import {Timeline} from './timeline.js';

const kNowMs = 1000, kRecentMs = 10000;
const kNamedMax = 4;
const kSteal = 'The machine kept the device from its work: other programs ran on its cores, or the driver was slow';
const kDrained = ['draining', 'drained'];  // States that an operator requested.

class Figure {
  constructor(label, hint) {
    this.value = element('dd', {class: 'value'});
    this.below = element('dd', {class: 'below'});
    this.root = element('div', {class: 'figure'}, element('dt', {title: hint}, label), this.value, this.below);
  }
  update(value, below = '', isBad = false) {
    setText(this.value, value);
    setText(this.below, below);
    this.root.classList.toggle('bad', isBad);
  }
}

// Stacked bar: each class's share of the device in the last second.
class NowBar {
  constructor() {
    this.title = element('dt');
    this.bar = element('div', {class: 'now-bar', role: 'img'});
    this.words = element('p', {class: 'now-words'});
    this.root = element('div', {class: 'figure now'}, this.title, element('dd', {}, this.bar),
      element('dd', {}, this.words));
    this.parts = new Map();
    this.texts = new Map();
  }
  // `held`: fraction of the time in which the host kept the device from running.
  update(shares, held) {
    setText(this.title, 'Running now');
    const busiest = [...shares].sort((a, b) => b.share - a.share).slice(0, kNamedMax);
    // Restores the fixed order of the rows below.
    const shown = shares.filter((each) => busiest.includes(each));
    const rest = shares.filter((each) => !busiest.includes(each)).reduce((sum, each) => sum + each.share, 0);
    if (rest > 0.005) shown.push({client: 'rest', name: `${shares.length - kNamedMax} others`, class: 'others', share: rest});
    if (held > 0.005) shown.push({client: 'held', name: 'host steal', class: 'held', share: held});
    const idle = Math.max(0, 1 - shown.reduce((sum, each) => sum + each.share, 0));
    keyed(this.bar, this.parts, shown, (each) => each.client, () => {
      const root = element('span');
      return {root, update: (each) => {
        root.dataset.class = each.class;
        root.style.flexGrow = each.share.toFixed(3);
      }};
    });
    this.bar.style.setProperty('--rest', idle.toFixed(3));
    setAttribute(this.bar, 'aria-label', shown.map((each) => `${each.name} ${wholePercent(100 * each.share)}`).join(', ') || 'idle');
    const words = [...shown, {client: 'idle', name: 'idle', class: 'idle', share: idle}].filter((each) => each.share >= 0.005);
    keyed(this.words, this.texts, words, (each) => each.client, () => {
      const name = named(''), share = element('span', {class: 'share'});
      const root = element('span', {class: 'who'}, element('span', {class: 'chip'}), name, ' ', share);
      return {root, update: (each) => {
        root.dataset.class = each.class;
        root.title = each.client === 'held' ? kSteal : '';
        setText(name, each.name);
        setText(share, wholePercent(100 * each.share));
      }};
    });
  }
}

export class DeviceCard {
  constructor(explain) {
    this.title = element('h2');
    this.model = element('p', {class: 'model'});
    this.state = element('p', {class: 'pill'});
    this.now = new NowBar();
    this.busy = new Figure('Busy', 'Part of the last 10 s in which clients used the device');
    this.gap = new Figure('Gap used', 'Of the time in which only lower classes had work: the part with their work on the device, ' +
      'even while the machine kept the device from that work');
    this.met = new Figure('Targets met', 'Requests of clients with a latency target that ended within it');
    this.memory = new Figure('Memory', 'Device memory that clients hold');
    this.stops = new Figure('Stops', 'Commands preempted for more urgent ones, in the last 10 s');
    this.timeline = new Timeline();
    this.table = new ClientTable(explain);
    this.trouble = element('p', {class: 'trouble', hidden: ''});
    this.root = element('section', {class: 'card device'},
      element('header', {}, this.title, this.model, this.state), this.trouble,
      element('dl', {class: 'figures'}, this.now.root, this.busy.root, this.gap.root, this.met.root, this.memory.root, this.stops.root),
      this.timeline.root, this.table.root);
    this.reset(undefined);
  }

  // Starts again, because the figures of a new worker start from 0.
  reset(generation) {
    this.generation = generation;
    this.time = new History(kRecentMs);
    this.stopped = new History(kRecentMs);
    this.heldUp = new History(kRecentMs);
    this.of = new Map();  // Device times by client.
  }

  update({at, device, clients: unsorted}) {
    const clients = [...unsorted].sort(usualOrder);
    if (device.generation !== this.generation) this.reset(device.generation);
    setText(this.title, device.device);
    setText(this.model, device.name ?? '');
    setText(this.state, device.state ?? '');
    this.state.dataset.state = device.state;
    this.showTrouble(device);
    this.time.add(at, device.device_time_s);
    this.noteClients(at, clients);
    this.heldUp.add(at, device.host_steal_s);
    this.now.update(this.shares(clients, kNowMs), this.heldUp.rate(kNowMs) ?? 0);
    const busy = this.time.rate(kRecentMs), held = this.heldUp.rate(kRecentMs) ?? 0;
    this.busy.update(wholePercent(busy === undefined ? undefined : 100 * Math.min(1, busy)),
      held < 0.01 ? 'of the last 10 s' : `host steal ${wholePercent(100 * held)}`);
    this.gap.update(percent(device.gap_used_percent), device.gap_s ? `of ${age(device.gap_s)} in all` : 'no gap so far');
    this.showTargets(device, clients);
    const used = device.mapped_bytes, all = device.memory_bytes;
    this.memory.update(bytes(used), `of ${bytes(all)}`);
    const shares = new Map(this.shares(clients, kRecentMs).map((each) => [each.client, each.share]));
    this.timeline.end('now');
    this.timeline.update(at, device.timeline, clients);
    this.table.update({at, clients, shares});
  }

  paint() { this.timeline.paint(); }

  // The server no longer answers: the values shown are the last known ones.
  forget() {
    setText(this.state, 'not known');
    this.state.dataset.state = 'unknown';
    setText(this.now.title, 'Ran last');
    this.timeline.end('last news');
  }

  noteClients(at, clients) {
    let stops = 0;
    const here = new Set();
    for (const client of clients) {
      here.add(client.client);
      if (!this.of.has(client.client)) this.of.set(client.client, new History(kRecentMs));
      this.of.get(client.client).add(at, client.device_time_s);
      stops += client.stops ?? 0;
    }
    for (const id of this.of.keys()) if (!here.has(id)) this.of.delete(id);
    this.stopped.add(at, stops);
    this.stops.update(perSecond(this.stopped.rate(kRecentMs)), `${number(stops)} in all`);
  }

  shares(clients, window_ms) {
    return clients.map((client) => ({client: client.client, name: client.name, class: client.class,
      share: Math.min(1, this.of.get(client.client).rate(window_ms) ?? 0)}));
  }

  showTargets(device, clients) {
    const withTarget = clients.filter((client) => client.latency_target_us !== undefined && client.requests > 0);
    const asked = withTarget.reduce((sum, client) => sum + client.requests, 0);
    const met = withTarget.reduce((sum, client) => sum + (client.requests_target_met ?? 0), 0);
    if (asked === 0) return this.met.update(kNothing, 'no client has a target', false);
    const missed = asked - met, share = 100 * met / asked;
    this.met.update(percent(share), missed === 0 ? `all ${number(asked)}` : `${number(missed)} missed`,
      device.overloaded === true || share < kMetLow);
  }

  showTrouble(device) {
    const words = [];
    if (device.overloaded) words.push('Overloaded: a latency target is abandoned at the moment.');
    if (device.missing) words.push(`Missing: ${device.missing}`);
    const isDrained = kDrained.includes(device.state);
    if (isDrained) words.push(`Drained by an operator: gpusharedctl resume ${device.device} admits clients again.`);
    if (device.state !== 'ready' && !isDrained && device.last_death) words.push(`Its last worker: ${device.last_death}`);
    this.trouble.hidden = words.length === 0;
    this.trouble.className = isDrained ? 'hint' : 'trouble';
    setText(this.trouble, words.join(' '));
  }
}
