package release

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// ignoreFile says what Helm leaves out of a chart that it packs; it is no part of one.
const ignoreFile = ".helmignore"

// LoadChart reads a chart from a folder that has nothing but the chart.
func LoadChart(folder fs.FS) (*chart.Chart, error) { return loadChart(folder, nil) }

// loadChart reads a chart from a folder, if that is not nil, and further files of it.
func loadChart(folder fs.FS, further map[string][]byte) (*chart.Chart, error) {
	var files []*archive.BufferedFile
	for _, name := range slices.Sorted(maps.Keys(further)) {
		files = append(files, &archive.BufferedFile{Name: name, Data: further[name]})
	}
	if folder == nil {
		return parseChart(files)
	}
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == ignoreFile {
			return err
		}
		data, err := fs.ReadFile(folder, path)
		if err != nil {
			return err
		}
		files = append(files, &archive.BufferedFile{Name: path, Data: data})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	return parseChart(files)
}

func parseChart(files []*archive.BufferedFile) (*chart.Chart, error) {
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	if c.Metadata == nil {
		return nil, errors.New("read the chart: it has no Chart.yaml")
	}
	return c, nil
}
