// Package ui is the tour of Argo CD's web interface over Argomesh: a headless Chromium walks
// through what people do, on both agents of the demo. States decide, times go into
// docs/ui.md. `make e2e-ui` runs it.
package ui
