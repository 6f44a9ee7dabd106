// SPDX-License-Identifier: Apache-2.0
// Receives the server's updates, four times a second, and distributes them.

import {DeviceCard} from './device.js';
import {keyed, setText} from './dom.js';
import {Explanation} from './explain.js';
import {age, number} from './format.js';

const kAgainMs = 3000;
const kSilentMs = 3000;  // The page shows a warning after this long without an update.
const kThemes = ['system', 'light', 'dark'];

const find = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.explanation = new Explanation(find('explain'));
    this.cards = new Map();
    this.area = document.createElement('div');
    this.area.className = 'cards';
    find('devices').insertBefore(this.area, find('rest'));
    this.updates = 0;
    this.at = 0;
    this.heard = performance.now();
    this.isPaused = false;
    this.setUpKeys();
    this.setUpTheme();
    this.listen();
    setInterval(() => this.noteSilence(), 1000);
    const paint = () => {
      if (!this.isPaused) for (const card of this.cards.values()) card.paint();
      requestAnimationFrame(paint);
    };
    requestAnimationFrame(paint);
  }

  listen() {
    const events = new EventSource('/events');
    events.onmessage = (event) => this.onUpdate(JSON.parse(event.data));
    events.onerror = () => {
      this.setState('lost', 'connection lost');
      if (events.readyState === EventSource.CLOSED) this.listenAgain();
    };
  }

  // The browser reconnects automatically unless it was rejected.
  async listenAgain() {
    try {
      const answer = await fetch('/healthz');
      if (answer.status === 401) return location.reload();  // Shows the login form.
    } catch { /* No server is running. */ }
    setTimeout(() => this.listen(), kAgainMs);
  }

  onUpdate(told) {
    if (told.at_ms < this.at) {  // The update comes from another gpushared-web.
      for (const card of this.cards.values()) card.root.remove();
      this.cards.clear();
    }
    this.at = told.at_ms;
    this.heard = performance.now();
    ++this.updates;
    document.documentElement.dataset.updates = this.updates;
    if (told.failure) return this.showFailure(told.failure);
    if (this.isPaused) return;
    this.setState('live', 'live');
    find('notice').hidden = true;
    setText(find('host'), told.host);
    const server = told.server;
    setText(find('server'), `${server.state}, policy ${server.policy}, up ${age(server.uptime_s)}, ${number(server.sessions)} clients`);
    const leftOut = told.clients_left_out ?? 0;
    find('rest').hidden = leftOut === 0;
    setText(find('rest'), `${number(leftOut)} more clients are not shown; gpusharedctl ps has all.`);
    document.title = `${told.host}: gpushared`;
    keyed(this.area, this.cards, told.devices.map((device) => ({
      at: told.at_ms, device, clients: told.clients.filter((client) => client.device === device.device),
    })), ({device}) => device.device, () => new DeviceCard((client) => this.explanation.show(client)));
  }

  noteSilence() {
    const silent = performance.now() - this.heard;
    if (silent > kSilentMs && find('state').dataset.state === 'live') {
      this.setState('lost', `no update for ${age(silent / 1000)}`);
    }
  }

  showFailure(why) {
    this.setState('lost', 'no server');
    setText(find('notice'), why);
    find('notice').hidden = false;
  }

  setState(state, words) {
    if (this.isPaused && state === 'live') return;
    find('state').dataset.state = state;
    setText(find('state-text'), words);
    document.body.classList.toggle('stale', state === 'lost');
    if (state === 'lost') for (const card of this.cards.values()) card.forget();
  }

  pause() {
    this.isPaused = !this.isPaused;
    find('pause').setAttribute('aria-pressed', this.isPaused);
    setText(find('pause'), this.isPaused ? 'Resume' : 'Pause');
    if (this.isPaused) {
      find('state').dataset.state = 'paused';
      setText(find('state-text'), 'paused');
    }
  }

  setUpKeys() {
    find('pause').addEventListener('click', () => this.pause());
    find('theme').addEventListener('click', () => this.nextTheme());
    document.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || find('explain').open) return;
      if (event.key === 'p') this.pause();
      if (event.key === 't') this.nextTheme();
    });
  }

  setUpTheme() {
    let kept = null;
    try { kept = localStorage.getItem('theme'); } catch { /* The browser has no storage. */ }
    this.setTheme(kThemes.includes(kept) ? kept : 'system');
  }
  nextTheme() { this.setTheme(kThemes[(kThemes.indexOf(this.theme) + 1) % kThemes.length]); }
  setTheme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    setText(find('theme-name'), `: ${theme}`);
    try { localStorage.setItem('theme', theme); } catch { /* The browser has no storage. */ }
  }
}

new Page();
