package release

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Render returns the objects that a chart has by values, which are not held against its schema. Nothing is contacted.
// The chart's name is that of the release.
func Render(folder fs.FS, namespace string, values map[string]any) (out []*unstructured.Unstructured, err error) {
	chart, err := loadChart(folder, nil)
	if err != nil {
		return nil, err
	}
	name := chart.Metadata.Name
	of := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValuesWithSchemaValidation(chart, values, of, nil, true)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", name, err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", name, err)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".yaml" || path.Base(path.Dir(file)) == "tests" {
			continue
		}
		objects, err := Objects(files[file])
		if err != nil {
			return nil, fmt.Errorf("chart %s: %s: %w", name, file, err)
		}
		out = append(out, objects...)
	}
	return out, nil
}
