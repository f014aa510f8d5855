package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints sections of rows, each section with columns of its own. Flush tells what
// could not be written.
type Table struct {
	tabs *tabwriter.Writer
	wide bool
}

// NewTable returns a table of no rows. Only a wide one shows every column.
func NewTable(w io.Writer, wide bool) *Table {
	return &Table{tabs: tabwriter.NewWriter(w, 0, 8, 3, ' ', 0), wide: wide}
}

// Row adds a row, with the cells of more only in a wide table. An empty cell is a dash, and
// each is on its line and in its column, no matter who wrote it.
func (t *Table) Row(cells []string, more ...string) {
	cells = slices.Clone(cells)
	if t.wide {
		cells = append(cells, more...)
	}
	for i, cell := range cells {
		if cells[i] = CleanText(cell); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
}

// Section begins the next section, after an empty line.
func (t *Table) Section() {
	_ = t.tabs.Flush()
	_, _ = fmt.Fprintln(t.tabs)
	_ = t.tabs.Flush()
}

// Flush writes what is not written yet.
func (t *Table) Flush() error { return t.tabs.Flush() }
