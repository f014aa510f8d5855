package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
	"github.com/argomesh/argomesh/mesh/spire"
)

// namedRights is how many of the rights that are missing a finding names.
const namedRights = 5

// missingRights finds rights that who installs lacks, or the service account of what is installed.
func missingRights(f *Facts) []Finding {
	const word = "RightsMissing"
	of, lacks := f.Chart.Rights.Of, f.Chart.Rights.Lacks
	switch {
	case of == "":
		return nil // they were not asked for
	case lacks.err != nil:
		return unread(word, "rights of "+of, lacks.err)
	case len(lacks.is) == 0:
		return well(word, of, "has the rights that it needs")
	}
	named, rest := lacks.is, ""
	if n := len(named) - namedRights; n > 0 {
		named, rest = named[:namedRights], fmt.Sprintf("; and %d more", n)
	}
	cure := ""
	switch {
	case f.Deployment.is == nil: // it is who installs
	case f.Release.is.Revision > 0:
		cure = fmt.Sprintf("run \"agentctl %s install\", which brings its roles back", f.Side)
	default:
		cure = "apply its roles and their bindings again, as they are among the files by which it was installed"
	}
	return []Finding{found(Problem, word, of, "may not "+strings.Join(named, "; ")+rest, cure)}
}

// askBefore asks which rights this user lacks to install the chart of a side, and to register its pods with SPIRE.
func askBefore(ctx context.Context, conn *cli.Connection, f *Facts) ([]string, error) {
	_, client, err := conn.Client()
	if err != nil {
		return nil, err
	}
	objects, err := beforeInstall(f)
	if err != nil {
		return nil, err
	}
	needs := slices.Concat(rights.OfHelm(f.Namespace), rights.ToMake(objects))
	if f.SPIRE.Served.is {
		needs = append(needs, rights.OfSPIRE(spire.ClusterSPIFFEIDKind)...)
	}
	return rights.Missing(ctx, client, string(f.Side), needs)
}

// beforeInstall returns the objects that an install is to make. What it has to be told has no part in which those are.
func beforeInstall(f *Facts) ([]*unstructured.Unstructured, error) {
	told := map[string]any{}
	if f.Side == Spoke {
		told["config"] = map[string]any{"name": "agent", "mode": "managed", "principal": map[string]any{
			"address": "principal.invalid:443", "spiffe_ids": []any{"spiffe://principal.invalid/principal"},
		}}
	}
	return rendered(f, loader.MergeMaps(told, f.Chart.Values))
}

// rights asks whether the service account of our program may do what its roles are for.
func (o *observer) rights(ctx context.Context, f *Facts) {
	if f.Deployment.is == nil {
		return
	}
	var needs []rights.Right
	objects, err := rolesOf(f)
	if err == nil {
		needs, err = rights.OfRoles(objects)
	}
	if err == nil && len(needs) == 0 {
		return
	}
	account := rights.Account{Namespace: o.namespace,
		Name: cmp.Or(f.Deployment.is.Spec.Template.Spec.ServiceAccountName, "default")}
	r := &f.Chart.Rights
	if r.Of, r.Lacks.err = "service account "+account.Name, err; err == nil {
		r.Lacks.is, r.Lacks.err = rights.MissingOf(ctx, o.client, account, string(o.side), needs)
	}
}

// rolesOf returns the objects among which the roles of our program are: those that its release says, else those that
// the chart has by the configuration with which it runs. None where it was installed by another chart than this
// agentctl has, and no release says what that had.
func rolesOf(f *Facts) ([]*unstructured.Unstructured, error) {
	if f.Release.is.Revision > 0 {
		objects, err := release.Objects(f.Release.is.Manifest)
		isRole := func(o *unstructured.Unstructured) bool { return o.GetKind() == "Role" }
		if err != nil || slices.ContainsFunc(objects, isRole) {
			return objects, err
		}
	}
	of := f.Deployment.is.Labels["helm.sh/chart"]
	if f.Config.is == nil || of != "" && of != f.Side.chart()+"-"+f.Chart.Version {
		return nil, f.Config.err
	}
	objects, err := rendered(f, map[string]any{"config": f.Config.is})
	if err != nil { // it has no roles for rules of live access of someone's own
		return rendered(f, map[string]any{"config": f.Config.is, "rbac": map[string]any{"live": false}})
	}
	return objects, nil
}

// rendered returns the objects that the chart of a side has by values.
func rendered(f *Facts, values map[string]any) ([]*unstructured.Unstructured, error) {
	folder, err := charts.Open(f.Side.chart())
	if err != nil {
		return nil, err
	}
	return release.Render(folder, f.Namespace, values)
}
