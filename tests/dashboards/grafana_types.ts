// A dashboard as Grafana's own types want it. In JSON an enum is its value, so enums count as the words they stand for.
import type { AnnotationQuery, Dashboard, DataQuery, Panel } from '@grafana/schema';
import type * as heatmap from './node_modules/@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as table from './node_modules/@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as lines from './node_modules/@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as dots from './node_modules/@grafana/schema/dist/esm/raw/composable/xychart/panelcfg/x/XYChartPanelCfg_types.gen';

type Literal<T> = T extends string
  ? `${T}`
  : T extends number
    ? T | (`${T}` extends `${infer N extends number}` ? N : never)
    : T extends (infer U)[]
      ? Literal<U>[]
      : T extends object
        ? { [K in keyof T]: Literal<T[K]> }
        : T;

// What Panel leaves open: the query, and the options and fields of each kind of panel.
type Target = {
  refId: string;
  datasource: { type: 'influxdb'; uid: string };
  rawQuery: true;
  query: string;
  resultFormat: 'time_series' | 'table';
  alias?: string;
};
type Kind<Name extends string, Options, Custom> = Omit<Panel<never, Custom>, 'type' | 'options' | 'targets'> & {
  type: Name;
  options: Options;
  targets: Target[];
};
type AnyPanel =
  | Kind<'timeseries', lines.Options, lines.FieldConfig>
  | Kind<'xychart', dots.Options, dots.FieldConfig>
  | Kind<'table', table.Options, Partial<table.FieldConfig>>
  | Kind<'heatmap', heatmap.Options, heatmap.FieldConfig>;
type Mark = DataQuery & {
  fromAnnotations: true;
  rawQuery: true;
  query: string;
  textColumn: string;
  titleColumn: string;
  tagsColumn: string;
  timeEndColumn: string;
};

export type Board = Literal<
  Omit<Dashboard, 'panels' | 'annotations'> & {
    panels: AnyPanel[];
    annotations: { list: AnnotationQuery<Mark>[] };
  }
>;
