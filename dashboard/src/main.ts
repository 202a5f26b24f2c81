import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import './lib/theme.svelte';

const target = document.getElementById('app');
if (target) mount(App, { target });
