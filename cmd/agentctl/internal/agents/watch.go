package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// watchRetry is how long after an error a hub that was there is asked again.
const watchRetry = time.Second

// agentWatch prints the line of each Agent that is not as it was printed last.
type agentWatch struct {
	std     cli.Streams
	hub     *cli.Hub
	tables  *cli.TablePrinter
	opts    metav1.ListOptions
	names   []string // those that are wanted; all when there is none
	columns []metav1.TableColumnDefinition
	// shown is what was printed of each, by namespace and name.
	shown map[string]string
}

// newAgentWatch watches these Agents, all when there is no name.
func newAgentWatch(std cli.Streams, h *cli.Hub, o *cli.Output, opts metav1.ListOptions, names ...string) *agentWatch {
	return &agentWatch{std: std, hub: h, tables: o.Tables(std.Out), opts: opts, names: names, shown: map[string]string{}}
}

// Run prints until ctx is done. It lives through restarts of the API server; what asking
// again does not mend ends it.
func (w *agentWatch) Run(ctx context.Context) error {
	from, err := w.list(ctx)
	if err != nil {
		return err
	}
	for {
		err := w.follow(ctx, from)
		for err == nil || !isFinal(err) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(watchRetry):
			}
			if from, err = w.list(ctx); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
}

// errPrint says that no one reads what is printed.
var errPrint = errors.New("cannot print")

// isFinal reports whether asking again does not mend an error.
func isFinal(err error) bool {
	return errors.Is(err, errPrint) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsNotFound(err)
}

// list prints what is there, and returns from where to follow it.
func (w *agentWatch) list(ctx context.Context) (resourceVersion string, err error) {
	table, err := w.hub.Table(ctx, "", w.opts)
	if err != nil {
		return "", err
	}
	there := map[string]bool{}
	for i := range table.Rows {
		key, err := keyOf(table.Rows[i])
		if err != nil {
			return "", err
		}
		there[key.String()] = true
	}
	if err := w.print(table); err != nil {
		return "", err
	}
	for key := range w.shown {
		if !there[key] {
			if err := w.printGone(key); err != nil {
				return "", err
			}
		}
	}
	return table.ResourceVersion, nil
}

// follow prints what changes, until the server ends the watch.
func (w *agentWatch) follow(ctx context.Context, from string) error {
	opts := w.opts
	opts.Watch, opts.ResourceVersion = true, from
	watching, err := w.hub.TableRequest(opts).Watch(ctx)
	if err != nil {
		return err
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		table, err := tableIn(event.Object)
		if err != nil {
			return err
		}
		if event.Type != watch.Deleted {
			if err := w.print(table); err != nil {
				return err
			}
			continue
		}
		for i := range table.Rows {
			key, err := keyOf(table.Rows[i])
			if err != nil {
				return err
			}
			if err := w.printGone(key.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// print prints the rows that differ from what was printed in more than the passing of time.
func (w *agentWatch) print(table *metav1.Table) error {
	if len(table.ColumnDefinitions) > 0 { // the first event of a watch has them
		w.columns = table.ColumnDefinitions
	}
	var news []metav1.TableRow
	for i := range table.Rows {
		key, err := keyOf(table.Rows[i])
		if err != nil {
			return err
		}
		if len(w.names) > 0 && !slices.Contains(w.names, key.Name) {
			continue
		}
		if text := w.textOf(table.Rows[i]); w.shown[key.String()] != text {
			w.shown[key.String()] = text
			news = append(news, table.Rows[i])
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := w.tables.Print(&metav1.Table{TypeMeta: table.TypeMeta, ColumnDefinitions: w.columns,
		Rows: news}); err != nil {
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	return nil
}

// textOf is what a row says, without its ages.
func (w *agentWatch) textOf(row metav1.TableRow) string {
	text := ""
	for i, cell := range row.Cells {
		if i >= len(w.columns) || w.columns[i].Type != "date" {
			text += fmt.Sprintf("%v\n", cell)
		}
	}
	return text
}

// printGone says that an Agent is no longer there.
func (w *agentWatch) printGone(key string) error {
	if _, was := w.shown[key]; !was {
		return nil
	}
	delete(w.shown, key)
	if _, err := fmt.Fprintf(w.std.Err, "Agent %s is deleted.\n", key); err != nil {
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	return nil
}

// agentKey is which Agent a row is of.
type agentKey struct{ Namespace, Name string }

func (k agentKey) String() string { return k.Namespace + "/" + k.Name }

func keyOf(row metav1.TableRow) (agentKey, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(row.Object.Raw, &meta); err != nil {
		return agentKey{}, fmt.Errorf("read the answer: %w", err)
	}
	return agentKey{meta.Namespace, meta.Name}, nil
}

// tableIn is the table of an event, which the client has decoded as any object.
func tableIn(o runtime.Object) (*metav1.Table, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return cli.ParseTable(raw)
}

// watchNames watches Agents by name, which are there.
func watchNames(ctx context.Context, std cli.Streams, h *cli.Hub, o *cli.Output, names []string) error {
	var problems []error
	for _, name := range names {
		if _, err := h.Agents.Get(ctx, name, metav1.GetOptions{}); err != nil {
			problems = append(problems, h.Explain(err, fmt.Sprintf("get agent %q", name)))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return h.Explain(newAgentWatch(std, h, o, metav1.ListOptions{}, names...).
		Run(ctx), "watch "+v1alpha1.AgentResource.Resource)
}

// watchUsage is the help of the flag.
const watchUsage = "go on and print the line of each agent that changes, until it is interrupted"

// watchable refuses formats in which changes are not printed.
func watchable(o *cli.Output) error {
	if o.IsTable() {
		return nil
	}
	return errors.New("--watch prints a table, with -o wide too: leave the other format out, or use kubectl get agents --watch")
}
