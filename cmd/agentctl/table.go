package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// table prints sections of rows, each section with columns of its own. Flush tells what
// could not be written.
type table struct {
	tabs *tabwriter.Writer
	wide bool
}

func newTable(w io.Writer, wide bool) *table {
	return &table{tabs: tabwriter.NewWriter(w, 0, 8, 3, ' ', 0), wide: wide}
}

// row adds a row, with the cells of more only in a wide table. An empty cell is a dash, and
// each is on its line and in its column, whoever wrote it.
func (t *table) row(cells []string, more ...string) {
	cells = slices.Clone(cells)
	if t.wide {
		cells = append(cells, more...)
	}
	for i, cell := range cells {
		if cells[i] = cleanText(cell); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
}

// section begins the next section, after an empty line.
func (t *table) section() {
	_ = t.tabs.Flush()
	_, _ = fmt.Fprintln(t.tabs)
	_ = t.tabs.Flush()
}

func (t *table) flush() error { return t.tabs.Flush() }
