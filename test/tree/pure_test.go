package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that decide and do not act: no input or output, no waiting, no clock of
// their own, no logger, no metrics. What they need of these is given to them as a value
// (docs/contributing/conventions.md, pure decisions).
var pure = []string{
	"api/v1alpha1",

	"backends/admission",
	"backends/appevents",
	"backends/appproject",
	"backends/appspec",
	"backends/bounds",
	"backends/cascades",
	"backends/copies",
	"backends/glob",
	"backends/jobs",
	"backends/mapping",
	"backends/needs",
	"backends/object",
	"backends/operations",
	"backends/ownership",
	"backends/policy",
	"backends/presence",
	"backends/record",
	"backends/refusals",
	"backends/schema",
	"backends/statuses",

	"charts",
	"cmd/agentctl/internal/accesswords",
	"cmd/agentctl/internal/removal",
	"cmd/agentctl/internal/specs",
	"cmd/internal/buildinfo",
	"cmd/internal/reasons",

	"fleet",
	"fleet/division",

	"identity",
	"internal/diff",
	"internal/notify",
	"internal/pause",
	"internal/sealed",

	"mesh",
	"mesh/istio",
	"mesh/spire",

	"proxies/masking",
	"proxies/redis/appkey",
	"proxies/redis/values",
	"proxies/redis/warmplan",
	"proxies/resource/mediatype",

	"stream",
	"stream/jsonlimit",
	"stream/link",
	"stream/protolimit",
	"stream/zstd",
}

// acting are imports by which a package acts. Of gRPC that is the package that connects and
// serves: codes, codecs and messages are values. An entry that ends in /... has all below it.
// Only what is imported directly counts: packages of the standard library such as crypto/x509
// link net for its types.
var acting = []string{
	"context", // who takes one waits, or calls someone who does
	"crypto/rand", "math/rand", "math/rand/v2",
	"database/sql", "io/ioutil", "net", "net/http", "os", "os/exec", "os/signal", "syscall",
	"log", "log/slog", "testing",
	"github.com/prometheus/...", "github.com/rs/zerolog", "github.com/spf13/cobra", "go.opentelemetry.io/...",
	"google.golang.org/grpc", "k8s.io/client-go/...",
}

// A package that is listed does nothing but decide; one that does nothing but decide is listed,
// so that it stays so.
func TestPureCore(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.rel()+"/", "test/") {
			continue
		}
		acts := append(actingImports(p), clockReads(t, p)...)
		listed := slices.Contains(pure, p.rel())
		if listed && len(acts) > 0 {
			t.Errorf("%s has %s: it decides in pure code, and what it needs of that is given to it", p.rel(), strings.Join(acts, ", "))
		}
		if !listed && len(acts) == 0 {
			t.Errorf("%s is pure: add it to the list, so that an import that acts is noticed", p.rel())
		}
	}
	existing := byName(t)
	for _, name := range pure {
		if _, exists := existing[name]; !exists {
			t.Errorf("the list of pure packages has %s, which does not exist: mend the list", name)
		}
	}
}

func actingImports(p pkg) (found []string) {
	for _, imported := range p.Imports {
		if permits(acting, imported) {
			found = append(found, imported)
		}
	}
	return found
}

// clock are the functions of package time that read the clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// clockReads are the calls of those in a package, with their places.
func clockReads(t *testing.T, p pkg) (found []string) {
	t.Helper()
	inspect(t, p, func(n ast.Node, at token.Position) {
		if call, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := call.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, call.Sel.Name) {
				found = append(found, "time."+call.Sel.Name+" at "+filepath.Base(at.String()))
			}
		}
	})
	return found
}

// Goroutines and channels have no place where the protocol is decided: every case fits in a
// table.
func TestLinkIsAStateMachine(t *testing.T) {
	link := byName(t)["stream/link"]
	if len(link.GoFiles) == 0 {
		t.Fatal("stream/link has no files: mend this test")
	}
	inspect(t, link, func(n ast.Node, at token.Position) {
		switch n.(type) {
		case *ast.GoStmt:
			t.Errorf("%v: stream/link starts a goroutine", at)
		case *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
			t.Errorf("%v: stream/link uses a channel", at)
		}
	})
}

// inspect shows each node of a package's syntax, tests apart.
func inspect(t *testing.T, p pkg, show func(n ast.Node, at token.Position)) {
	t.Helper()
	fset := token.NewFileSet()
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				show(n, fset.Position(n.Pos()))
			}
			return true
		})
	}
}
