-- The join as Flink SQL. What begins with a dollar is filled in by __init__.py.
CREATE TABLE impressions (
  ad_id BIGINT,
  shown_at BIGINT,
  campaign STRING,
  cost DOUBLE,
  shown AS TO_TIMESTAMP_LTZ(shown_at, 3),
  WATERMARK FOR shown AS shown - INTERVAL $watermark_delay
) WITH (
  'topic' = '$left',
  $source
);

CREATE TABLE clicks (
  ad_id BIGINT,
  clicked_at BIGINT,
  `user` STRING,
  clicked AS TO_TIMESTAMP_LTZ(clicked_at, 3),
  WATERMARK FOR clicked AS clicked - INTERVAL $watermark_delay
) WITH (
  'topic' = '$right',
  $source
);

CREATE TABLE joined (
  record_key STRING,
  ad_id BIGINT,
  campaign STRING,
  `user` STRING,
  shown_at TIMESTAMP_LTZ(3),
  clicked_at TIMESTAMP_LTZ(3)
) WITH (
  'topic' = '$output',
  $sink
);

-- Of the computed columns the sink would take one for the record's timestamp, and refuses two.
INSERT INTO joined
SELECT
  CAST(i.ad_id AS STRING),
  i.ad_id,
  i.campaign,
  c.`user`,
  TO_TIMESTAMP_LTZ(i.shown_at, 3),
  TO_TIMESTAMP_LTZ(c.clicked_at, 3)
FROM impressions i
$join clicks c
ON i.ad_id = c.ad_id AND c.clicked BETWEEN i.shown AND i.shown + INTERVAL $match_window;
