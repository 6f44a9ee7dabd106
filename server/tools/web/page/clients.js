// SPDX-License-Identifier: Apache-2.0
// Table of the clients of one device.

import {element, keyed, named, setAttribute, setText} from './dom.js';
import {age, bytes, kNothing, microseconds, number, percent, wholePercent} from './format.js';
import {History, Sparkline} from './history.js';

const kPastMs = 60000;
const kClasses = ['high', 'normal', 'low'];
const kStarvedShownS = 1;
// Lowest percentage in the chart of met targets, unless fewer targets were met.
export const kMetLow = 99;

// Orders clients by class, then by age.
export function usualOrder(a, b) {
  return kClasses.indexOf(a.class) - kClasses.indexOf(b.class) || a.client - b.client;
}

// A column: its name, its heading, and `by`, which returns its sort key. Columns without `by` cannot be sorted.
const kColumns = [
  {key: 'client', heading: 'Client', by: (client) => client.name ?? '', first: 'ascending'},
  {key: 'class', heading: 'Class', by: (client) => kClasses.indexOf(client.class), first: 'ascending'},
  {key: 'share', heading: 'Device time', by: (client, shares) => shares.get(client.client) ?? 0, hint: 'Share of the last 10 s'},
  {key: 'p50', heading: 'p50', by: (client) => client.request_p50_us ?? -1, hint: 'Half of its requests took no longer'},
  {key: 'p99', heading: 'p99', by: (client) => client.request_p99_us ?? -1, hint: '99 % of its requests took no longer; line: the last minute; dashed: its target'},
  {key: 'target', heading: 'Target', by: (client) => client.latency_target_us ?? -1, hint: 'Its latency goal for each request'},
  {key: 'met', heading: 'Met', by: (client) => -(client.target_met_percent ?? 101), hint: 'Requests within their target; line: the last minute'},
  {key: 'wait', heading: 'Wait p99', by: (client) => client.queue_wait_p99_us ?? -1, hint: 'From a command’s arrival to its start; a wait in progress is shown from 1 s on'},
  {key: 'memory', heading: 'Memory', by: (client) => client.memory_bytes ?? -1},
  {key: 'stops', heading: 'Stops', by: (client) => client.stops ?? -1, hint: 'Commands preempted'},
  {key: 'explain', heading: ''},
];

class Row {
  constructor(client, explain) {
    this.id = client.client;
    this.p99 = new History(kPastMs);
    this.met = new History(kPastMs);
    this.p99Line = new Sparkline();
    this.metLine = new Sparkline();
    this.cells = new Map(kColumns.map(({key, heading}) => [key, element(key === 'client' ? 'th' : 'td', {class: key, 'data-label': heading})]));
    this.cells.get('client').scope = 'row';
    this.name = named('');
    this.number = element('span', {class: 'id'});
    this.starved = element('span', {class: 'starved', hidden: '',
      title: 'Its work was ready, but less than a hundredth of that time on the device'});
    this.cells.get('client').append(element('span', {class: 'chip'}), this.name, ' ', this.number, ' ', this.starved);
    this.bar = element('span', {class: 'share-bar', 'aria-hidden': 'true'});
    this.texts = new Map();
    for (const key of ['class', 'share', 'p50', 'p99', 'target', 'met', 'wait', 'memory', 'stops']) {
      const text = element('span', {class: 'text'});
      this.texts.set(key, text);
      this.cells.get(key).append(text);
    }
    this.cells.get('share').append(this.bar);
    this.cells.get('p99').append(this.p99Line.root);
    this.cells.get('met').append(this.metLine.root);
    this.button = element('button', {type: 'button', class: 'small'}, 'Explain');
    this.button.addEventListener('click', () => explain(this.client));
    this.cells.get('explain').append(this.button);
    this.root = element('tr', {}, ...this.cells.values());
  }

  update({at, client, share}) {
    this.client = client;
    this.root.dataset.class = client.class;
    this.root.dataset.client = client.client;
    setText(this.name, client.name ?? '');
    setAttribute(this.name, 'title', client.name ?? '');
    setText(this.number, `#${client.client}`);
    const set = (key, text) => this.set(key, text);
    set('class', client.class ?? '');
    set('share', wholePercent(share === undefined ? undefined : 100 * share));
    this.bar.style.setProperty('--share', (share ?? 0).toFixed(3));
    set('p50', microseconds(client.request_p50_us));
    set('p99', microseconds(client.request_p99_us));
    const isStarved = client.starved_for_s >= kStarvedShownS;
    this.starved.hidden = !isStarved;
    setText(this.starved, isStarved ? `waiting for ${age(client.starved_for_s)}` : '');
    this.cells.get('wait').classList.toggle('warn', isStarved);
    set('wait', isStarved ? `${age(client.starved_for_s)} so far` : microseconds(client.queue_wait_p99_us));
    set('memory', bytes(client.memory_bytes));
    set('stops', number(client.stops));
    this.showTarget(at, client);
    this.button.hidden = !(client.requests > 0 || client.commands > 0);
    setAttribute(this.button, 'aria-label', `Explain the slowest request of ${client.name}`);
  }

  // Columns without any value are hidden if there is little space.
  set(key, text) {
    setText(this.texts.get(key), text);
    this.cells.get(key).classList.toggle('nothing', text === kNothing);
  }

  showTarget(at, client) {
    const target = client.latency_target_us;
    const hasRequests = client.requests > 0;
    this.set('met', target !== undefined && hasRequests ? percent(client.target_met_percent) : kNothing);
    this.set('target', microseconds(target));
    if (hasRequests) this.p99.add(at, client.request_p99_us);
    if (hasRequests && target !== undefined) this.met.add(at, client.target_met_percent);
    this.p99Line.root.style.visibility = this.p99.points.length > 1 ? '' : 'hidden';
    this.metLine.root.style.visibility = this.met.points.length > 1 ? '' : 'hidden';
    const isLate = target !== undefined && hasRequests && client.request_p99_us > target;
    this.cells.get('p99').classList.toggle('bad', isLate);
    this.cells.get('met').classList.toggle('bad', target !== undefined && hasRequests && client.target_met_percent < kMetLow);
    this.p99Line.update(this.p99, {limit: target});
    const least = Math.min(kMetLow, ...this.met.points.map((point) => point.value));
    this.metLine.update(this.met, {low: least - 0.1, high: 100});
  }
}

export class ClientTable {
  constructor(explain) {
    this.explain = explain;
    this.rows = new Map();
    this.sorted = undefined;  // {key, isAscending}
    this.headings = new Map();
    const heads = kColumns.map((column) => this.heading(column));
    this.body = element('tbody');
    this.nobody = element('p', {class: 'hint nobody', hidden: ''}, 'No client is connected.');
    this.root = element('div', {class: 'clients'},
      element('table', {}, element('thead', {}, element('tr', {}, ...heads)), this.body), this.nobody);
  }

  heading(column) {
    const head = element('th', {class: column.key, scope: 'col', ...(column.hint ? {title: column.hint} : {})});
    if (!column.by) return head;
    const button = element('button', {type: 'button'}, column.heading);
    button.addEventListener('click', () => this.sortBy(column));
    head.append(button);
    this.headings.set(column.key, head);
    return head;
  }

  // The third click restores the default order.
  sortBy(column) {
    const first = column.first === 'ascending';
    if (this.sorted?.key !== column.key) {
      this.sorted = {key: column.key, isAscending: first};
    } else if (this.sorted.isAscending === first) {
      this.sorted.isAscending = !first;
    } else {
      this.sorted = undefined;
    }
    for (const [key, head] of this.headings) {
      if (this.sorted?.key === key) {
        head.setAttribute('aria-sort', this.sorted.isAscending ? 'ascending' : 'descending');
      } else {
        head.removeAttribute('aria-sort');
      }
    }
    if (this.last) this.update(this.last);
  }

  update(told) {
    this.last = told;
    const {at, clients, shares} = told;
    const column = kColumns.find(({key}) => key === this.sorted?.key);
    const ordered = [...clients].sort((a, b) => {
      if (!column) return usualOrder(a, b);
      const x = column.by(a, shares), y = column.by(b, shares);
      const order = x < y ? -1 : x > y ? 1 : 0;
      return (this.sorted.isAscending ? order : -order) || usualOrder(a, b);
    });
    keyed(this.body, this.rows, ordered.map((client) => ({at, client, share: shares.get(client.client)})),
      ({client}) => client.client, ({client}) => new Row(client, this.explain));
    this.nobody.hidden = clients.length > 0;
  }
}
